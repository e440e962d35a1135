"""May hangdoc look into processes here, and are its tools installed? Tried on processes of its own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from hangdoc import interpreter
from hangdoc.capture.inject.gdb import Gdb, GdbError, find_gdb
from hangdoc.capture.read import native_stacks, procfs, stacks
from hangdoc.capture.read.permission import Powers, forbidden, own_powers
from hangdoc.capture.safe.tool import run_tool
from hangdoc.doctor.check import BLOCKED, LIMITED, OK, Check
from hangdoc.model.snapshot import Unavailable

_SECONDS = 10.0
"""For each trial; the slowest, pystack's, takes 0.25 to 0.6 s (measured). Judgement."""

# A child that leaves our process tree, as the ranks of a job that was started elsewhere have never been in it.
_STRANGER = """
import os, time
if os.fork():
    os._exit(0)
os.setsid()
os.write(1, b"%d" % os.getpid())
os.closerange(1, 3)
time.sleep(60)
"""


def machine() -> Iterator[Check]:
    """The platform, /proc, and the rules about looking into other processes."""
    if not sys.platform.startswith("linux") or not Path("/proc/self/stat").exists():
        yield Check("platform", BLOCKED, "this is not Linux with /proc", "Run hangdoc where the ranks run.")
        return
    yield _proc()
    powers = own_powers()
    yield _namespaces(powers)
    try:
        with _stranger() as pid:
            yield permission(powers, pid)
    except (OSError, ValueError) as error:
        yield Check("ptrace", LIMITED, f"no process could be started to try it on: {error}", "Free memory or pids.")


def _proc() -> Check:
    with contextlib.suppress(OSError):
        mounts = Path("/proc/mounts").read_text(encoding="utf-8", errors="replace").splitlines()
        options = next((line.split()[3] for line in mounts if line.split()[1:3] == ["/proc", "proc"]), "")
        if "hidepid=" in options and "hidepid=0" not in options and os.geteuid() != 0:
            fix = "Only your own processes are seen; the job's must be."
            return Check("/proc", LIMITED, f"mounted with {options}", fix)
    return Check("platform", OK, "Linux with /proc")


def _namespaces(powers: Powers) -> Check:
    if "pid" in powers.contained:
        finding = "this is a container (a pid namespace of its own): jobs outside of it are not seen"
        return Check("namespaces", OK, finding)
    return Check("namespaces", OK, "the machine's own: jobs in containers are seen too")


def permission(powers: Powers, stranger: int) -> Check:
    """Check if hangdoc may read processes of its own user that it did not start, and those of other users.

    ``stranger``: such a process. Without it `watch` works, since its ranks permit it, and `attach` does not.
    """
    yama = "no Yama" if powers.yama is None else f"ptrace_scope {powers.yama}"
    shut = forbidden(stranger, powers)
    if shut is not None and powers.yama == 1:
        finding = f"{shut.why}: `watch` works, since its ranks permit it; `attach` to other jobs does not"
        return Check("ptrace", LIMITED, finding, shut.remedy)
    if shut is not None:
        return Check("ptrace", LIMITED, f"{shut.why}: no stacks from outside", shut.remedy)
    if powers.sys_ptrace and "user" not in powers.contained:
        return Check("ptrace", OK, f"every user's processes may be read (CAP_SYS_PTRACE, {yama})")
    return Check("ptrace", OK, f"your own processes may be read, other users' not (no CAP_SYS_PTRACE, {yama})")


def tools() -> Iterator[Check]:
    """py-spy, which everything builds on, then pystack and gdb, which are optional."""
    with _child() as pid:
        yield _py_spy(pid)
        yield _pystack(pid)
        yield _gdb(pid)


def _py_spy(pid: int) -> Check:
    program = stacks.find_py_spy()
    if program is None:
        return Check("py-spy", LIMITED, "not found: no stacks", f"{sys.executable} -m pip install py-spy")
    found = stacks.dump([pid], deadline=_SECONDS)[pid]
    if isinstance(found, Unavailable):
        return Check("py-spy", LIMITED, f"{found.why}: no stacks", found.remedy)
    return Check("py-spy", OK, f"{program} reads the stack of a child")


def _pystack(pid: int) -> Check:
    program = native_stacks.find_pystack()
    if program is None:
        return Check("pystack", OK, "not installed (optional): Python's frames only, no C++ frames")
    found = native_stacks.dump({pid: pid}, deadline=_SECONDS)[pid]
    if isinstance(found, Unavailable):
        return Check("pystack", LIMITED, f"{found.why}: no C++ frames", found.remedy)
    return Check("pystack", OK, f"{program} reads the C++ frames of a child")


def _gdb(pid: int) -> Check:
    program = find_gdb()
    if program is None:
        return Check("gdb", OK, "not installed (optional): no `attach --inject`")
    until = time.monotonic() + _SECONDS
    try:
        gdb = Gdb(program)
    except OSError as error:
        return Check("gdb", LIMITED, f"{program} cannot be started: {error.strerror}", "Reinstall gdb.")
    try:
        gdb.ready(until)
        gdb.attach(pid, until)
    except (GdbError, TimeoutError) as error:
        why = str(error) or "no answer in time"
        remedy = stacks.PERMISSION if "not permitted" in why else "Use gdb 8.1 or newer."
        return Check("gdb", LIMITED, f"{why}: no `attach --inject`", remedy)
    finally:
        gdb.end()
    return Check("gdb", OK, f"{program} holds and releases a child")


@contextlib.contextmanager
def _child() -> Iterator[int]:
    """A Python process that waits."""
    command = interpreter.command("print(flush=True); sys.stdin.read()")
    environment = interpreter.environment()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as child:
        try:
            if child.stdout is not None:
                child.stdout.readline()
            yield child.pid
        finally:
            child.kill()


@contextlib.contextmanager
def _stranger() -> Iterator[int]:
    """A process of ours that is not below us in the process tree. ValueError if it did not start."""
    command = interpreter.command(_STRANGER, options=("-S", "-E"))
    pid = int(run_tool(command, until=time.monotonic() + _SECONDS, most_output=64).output)
    try:
        yield pid
    finally:
        if procfs.exists(pid):
            os.kill(pid, signal.SIGKILL)
