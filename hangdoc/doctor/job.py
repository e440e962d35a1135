"""The job's side: where hangdoc keeps its files, and whether the job's own Python loads the probe."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from hangdoc import interpreter
from hangdoc.capture.inject import safety
from hangdoc.capture.safe.tool import ToolResult, run_tool
from hangdoc.doctor.check import BLOCKED, LIMITED, OK, Check, failed
from hangdoc.errors import HangdocError

IMPORT_SECONDS = 120.0
"""How long `import torch` may take: it is slow on a cold network file system. Judgement."""
_MOST_OUTPUT = 8 << 20
"""Bytes of what the job's Python prints: the answer, after whatever a site's own torch prints. Judgement."""

# What the job's own Python is asked, with the probe on its path. One line with a mark of ours: a torch of the
# site may print whatever it likes.
_QUESTION = """
import torch
probe = sys.modules.get("hangdoc_probe")
recorder = hasattr(getattr(torch._C, "_distributed_c10d", None), "_dump_fr_trace")
python = "%d.%d" % sys.version_info[:2]
print("hangdoc-doctor", torch.__version__, bool(getattr(probe, "STATE", None)), recorder, python)
"""


def places(environment: dict[str, str]) -> Iterator[Check]:
    """The run directory and the folder of the probes' sockets."""
    from hangdoc.sidecar.run_directory import DEFAULT_PARENT, RunDirectory, SocketFolder

    try:
        RunDirectory(Path(DEFAULT_PARENT) / "check").check()
        yield Check("run directory", OK, f"{Path('.hangdoc').absolute()} can be written")
    except (HangdocError, OSError) as error:
        yield failed("run directory", LIMITED, error)
    try:
        folder = SocketFolder(environment)
        folder.close()
        yield Check("sockets", OK, f"short private folders in {folder.path.parent}")
    except (HangdocError, OSError) as error:
        yield failed("sockets", BLOCKED, error)


def python(python: str, environment: dict[str, str]) -> Iterator[Check]:
    """What that interpreter says with the probe on its path: torch, the probe's entry point, the flight recorder."""
    if environment.get("TORCH_DEVICE_BACKEND_AUTOLOAD", "1") == "0":
        finding = "TORCH_DEVICE_BACKEND_AUTOLOAD=0 keeps it out of the ranks"
        yield Check("probe", LIMITED, finding, "Unset that variable.")
        return
    try:
        done = _ask(python, environment)
    except HangdocError:
        return  # already reported by the check of the sockets
    except TimeoutError:
        why = f"`import torch` took longer than {IMPORT_SECONDS:g} s"
        yield Check("torch", LIMITED, why, "See whether the file system of the environment is slow.")
        return
    except OSError as error:
        yield Check("torch", BLOCKED, f"{python} cannot be run: {error.strerror}", "Give the job's --python.")
        return
    yield from _answered(python, done)


def _ask(python: str, environment: dict[str, str]) -> ToolResult:
    """Run the question in that interpreter, with a folder for the probe's socket. Raises what ``run_tool`` raises.

    ``HangdocError`` if there is no folder for sockets.
    """
    from hangdoc.sidecar.launch import child_environment
    from hangdoc.sidecar.run_directory import SocketFolder

    folder = SocketFolder(environment)
    try:
        return run_tool(
            interpreter.command(_QUESTION, python=python),
            until=time.monotonic() + IMPORT_SECONDS,
            most_output=_MOST_OUTPUT,
            environment=child_environment(interpreter.environment(environment), folder.path),
        )
    finally:
        folder.close()


def _answered(python: str, done: ToolResult) -> Iterator[Check]:
    """What the interpreter has written, as checks."""
    output = done.output.decode("utf-8", "replace").splitlines()
    answer = next((line.split() for line in output if line.startswith("hangdoc-doctor ")), None)
    if answer is None or len(answer) != 5:
        lines = done.errors.decode("utf-8", "replace").strip().splitlines()
        why = f"{python} cannot import torch: {lines[-1] if lines else f'status {done.status}'}"
        yield Check("torch", LIMITED, why, "Give the Python that runs the job: hangdoc doctor --python PATH.")
        return
    _, version, loaded, recorder, release = answer
    yield Check("torch", OK, f"{version} in {python}")
    if loaded == "True":
        yield Check("probe", OK, "loads with `import torch`")
    else:
        yield Check("probe", LIMITED, "does not load with `import torch`", "It needs torch 2.5 or later.")
    yield _recorder(version, present=recorder == "True")
    yield _injection(release)


def _recorder(version: str, *, present: bool) -> Check:
    try:
        release = tuple(int(part) for part in version.split("+", maxsplit=1)[0].split(".")[:2])
    except ValueError:
        release = (0, 0)
    if not present:
        return Check("flight recorder", LIMITED, "this torch has none: no call history", "Use torch 2.8 or later.")
    if release < (2, 8):
        return Check("flight recorder", LIMITED, "only with NCCL in this torch", "Use torch 2.8 or later for gloo.")
    return Check("flight recorder", OK, "on by default" if release >= (2, 11) else "watch turns it on")


def _injection(release: str) -> Check:
    """`attach --inject` beyond gdb: which versions of Python it was measured with."""
    major, _, minor = release.partition(".")
    shut = safety.python_version(int(major), int(minor))
    if shut is not None:
        return Check("injection", LIMITED, f"{shut.why}: no `attach --inject`", shut.remedy)
    return Check("injection", OK, f"`attach --inject` knows Python {release}")
