"""Stopping a process for a moment (ptrace): when it may be done, and how to be sure that it goes on afterwards."""

from __future__ import annotations

import contextlib
import os
import signal
import time

from hangdoc.capture.read import procfs
from hangdoc.model.process import ProcessState
from hangdoc.model.snapshot import Unavailable

_SETTLE_SECONDS = 1.0
"""How long a stop that a killed tracer asked for may take to arrive. Judgement."""


def shut(why: str, remedy: str = "") -> Unavailable:
    """Why a process may not be held, and what would help."""
    return Unavailable("ptrace", why, remedy)


def may_be_held(state: ProcessState | None) -> Unavailable | None:
    """What forbids stopping the process, as it was seen; None if nothing does.

    A tracer hangs on a thread in state D; if it goes away while it waits, the process stays stopped.
    """
    if state is None or state.state in "ZX":
        return shut("the process is gone")
    if state.tracer_pid:
        return shut(f"process {state.tracer_pid} traces it (a debugger, strace)", f"detach process {state.tracer_pid}")
    for thread in state.threads:
        if thread.state in "Tt":
            return shut(f"thread {thread.tid} ({thread.name}) is stopped (state T)", "let it go on (SIGCONT) first")
        if thread.state in "DZX":
            return shut(f"thread {thread.tid} ({thread.name}) is in state {thread.state}", "look again when it left it")
    return None


def let_go(pid: int) -> None:
    """Continue a process whose tracer had to be killed: a stop that the tracer asked for may still come, and last.

    Only for a process that was not stopped before.
    """
    until = time.monotonic() + _SETTLE_SECONDS
    while time.monotonic() < until:
        if procfs.is_stopped(pid):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGCONT)
            return
        time.sleep(0.05)
