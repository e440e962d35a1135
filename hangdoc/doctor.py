"""Can hangdoc work here? Each check tries the thing itself and names the blocker and its fix."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from hangdoc.errors import HangdocError

IMPORT_SECONDS = 120.0
"""How long `import torch` may take: it is slow on a cold network file system."""

_OK, _LIMITED, _BLOCKED = "ok", "limited", "blocked"

# What the job's own Python is asked, with the probe on its path. One line with a mark of ours: a torch of the
# site may print whatever it likes.
_QUESTION = """
import sys, torch
probe = sys.modules.get("hangdoc_probe")
recorder = hasattr(getattr(torch._C, "_distributed_c10d", None), "_dump_fr_trace")
print("hangdoc-doctor", torch.__version__, bool(getattr(probe, "STATE", None)), recorder)
"""


@dataclass(frozen=True, slots=True)
class Check:
    """One finding. ``state``: 'ok', 'limited' (hangdoc works and sees less) or 'blocked'."""

    name: str
    state: str
    finding: str
    fix: str = ""


def check_all(python: str | None = None, environment: dict[str, str] | None = None) -> Iterator[Check]:
    """Every check, as soon as it is done. ``python`` is the job's interpreter (default: the one on PATH)."""
    environment = dict(os.environ) if environment is None else environment
    checks: tuple[Callable[[], Iterator[Check]], ...] = (
        _platform,
        _ptrace,
        _py_spy,
        lambda: _places(environment),
        lambda: _probe(python or shutil.which("python") or sys.executable, environment),
    )
    for check in checks:
        yield from check()


def _platform() -> Iterator[Check]:
    if not sys.platform.startswith("linux") or not Path("/proc/self/stat").exists():
        yield Check("platform", _BLOCKED, "this is not Linux with /proc", "Run hangdoc where the ranks run.")
        return
    with contextlib.suppress(OSError):
        mounts = Path("/proc/mounts").read_text(encoding="utf-8", errors="replace").splitlines()
        options = next((line.split()[3] for line in mounts if line.split()[1:3] == ["/proc", "proc"]), "")
        if "hidepid=" in options and "hidepid=0" not in options and os.geteuid() != 0:
            yield Check(
                "/proc",
                _LIMITED,
                f"mounted with {options}",
                "Only your own processes are seen; the job's must be.",
            )
            return
    yield Check("platform", _OK, "Linux with /proc")


def _ptrace() -> Iterator[Check]:
    try:
        scope = Path("/proc/sys/kernel/yama/ptrace_scope").read_text(encoding="ascii").strip()
    except OSError:
        yield Check("ptrace", _OK, "no Yama: you may read your own processes")
        return
    if scope == "0" or (os.geteuid() == 0 and scope != "3"):
        yield Check("ptrace", _OK, f"ptrace_scope {scope}")
    elif scope == "1":
        yield Check(
            "ptrace",
            _LIMITED,
            "ptrace_scope 1: `watch` works, since its ranks permit it; `attach` to other jobs does not",
            "For attach: sudo sysctl kernel.yama.ptrace_scope=0, or run hangdoc as root.",
        )
    else:
        yield Check(
            "ptrace",
            _LIMITED,
            f"ptrace_scope {scope}: no stacks from outside",
            "sudo sysctl kernel.yama.ptrace_scope=1 (3 needs a reboot), or run hangdoc as root.",
        )


def _py_spy() -> Iterator[Check]:
    from hangdoc.capture.stacks import dump, find_py_spy
    from hangdoc.model.snapshot import Unavailable

    program = find_py_spy()
    if program is None:
        yield Check("py-spy", _LIMITED, "not found: no stacks", f"{sys.executable} -m pip install py-spy")
        return
    command = [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        try:
            if child.stdout is not None:
                child.stdout.readline()
            found = dump([child.pid], deadline=10.0)[child.pid]
        finally:
            child.kill()
    if isinstance(found, Unavailable):
        yield Check("py-spy", _LIMITED, f"{found.why}: no stacks", found.remedy)
    else:
        yield Check("py-spy", _OK, f"{program} reads the stack of a child")


def _places(environment: dict[str, str]) -> Iterator[Check]:
    from hangdoc.sidecar.rundir import RunDirectory, SocketFolder

    try:
        RunDirectory(Path(".hangdoc") / "check").check()
        yield Check("run directory", _OK, f"{Path('.hangdoc').absolute()} can be written")
    except (HangdocError, OSError) as error:
        yield _failed("run directory", _LIMITED, error)
    try:
        folder = SocketFolder(environment)
        folder.close()
        yield Check("sockets", _OK, f"short private folders in {folder.path.parent}")
    except (HangdocError, OSError) as error:
        yield _failed("sockets", _BLOCKED, error)


def _failed(name: str, state: str, error: Exception) -> Check:
    if isinstance(error, HangdocError):
        return Check(name, state, error.what, error.remedy)
    return Check(name, state, str(error))


def _probe(python: str, environment: dict[str, str]) -> Iterator[Check]:
    from hangdoc.sidecar.launch import child_environment
    from hangdoc.sidecar.rundir import SocketFolder

    if environment.get("TORCH_DEVICE_BACKEND_AUTOLOAD", "1") == "0":
        yield Check(
            "probe",
            _LIMITED,
            "TORCH_DEVICE_BACKEND_AUTOLOAD=0 keeps it out of the ranks",
            "Unset that variable.",
        )
        return
    try:
        folder = SocketFolder(environment)
    except HangdocError:
        return  # already reported by the check of the sockets
    try:
        done = subprocess.run(
            [python, "-c", _QUESTION],
            env=child_environment(environment, folder.path),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=IMPORT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        why = f"`import torch` took longer than {IMPORT_SECONDS:g} s"
        yield Check("torch", _LIMITED, why, "See whether the file system of the environment is slow.")
        return
    except OSError as error:
        yield Check("torch", _BLOCKED, f"{python} cannot be run: {error.strerror}", "Give the job's --python.")
        return
    finally:
        folder.close()
    output = done.stdout.decode("utf-8", "replace").splitlines()
    answer = next((line.split() for line in output if line.startswith("hangdoc-doctor ")), None)
    if answer is None or len(answer) != 4:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        why = f"{python} cannot import torch: {lines[-1] if lines else f'status {done.returncode}'}"
        yield Check("torch", _LIMITED, why, "Give the Python that runs the job: hangdoc doctor --python PATH.")
        return
    _, version, loaded, recorder = answer
    yield Check("torch", _OK, f"{version} in {python}")
    if loaded == "True":
        yield Check("probe", _OK, "loads with `import torch`")
    else:
        yield Check("probe", _LIMITED, "does not load with `import torch`", "It needs torch 2.5 or later.")
    yield _recorder(version, present=recorder == "True")


def _recorder(version: str, *, present: bool) -> Check:
    try:
        release = tuple(int(part) for part in version.split("+", maxsplit=1)[0].split(".")[:2])
    except ValueError:
        release = (0, 0)
    if not present:
        return Check("flight recorder", _LIMITED, "this torch has none: no call history", "Use torch 2.8 or later.")
    if release < (2, 8):
        return Check("flight recorder", _LIMITED, "only with NCCL in this torch", "Use torch 2.8 or later for gloo.")
    return Check("flight recorder", _OK, "on by default" if release >= (2, 11) else "watch turns it on")
