"""End a hung job because the user asked for it: the launcher first, then whatever stays, in bounded time."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from hangdoc.capture.read import procfs
from hangdoc.sidecar.launch import PROBE_VARIABLE

GRACE_SECONDS = 10.0
_KILL_SECONDS = 10.0
_POLL_SECONDS = 0.1

Members = dict[int, float]
"""Pid → start time in seconds since boot: together they name one process for good."""


def job_members(launcher: int, socket_folder: Path, known: Members) -> Members:
    """The living processes of the job: below the launcher, seen before, or started with our socket folder.

    The last finds those whose parents are gone already.
    """
    processes = procfs.table()
    announced = os.fsencode(f"{PROBE_VARIABLE}={socket_folder}")
    below = set(procfs.descendants(launcher, processes))
    return {
        pid: entry.started
        for pid, entry in processes.items()
        if entry.state not in "ZX"
        and pid != os.getpid()
        and (pid in below or known.get(pid) == entry.started or announced in _environment(pid))
    }


def end_job(launcher: int, socket_folder: Path, launcher_ended: Callable[[float], bool]) -> list[int]:
    """SIGTERM the launcher, give it some seconds, SIGKILL it, then every process of the job that stays.

    ``launcher_ended(seconds)`` waits for the launcher at most so long and tells whether it ended. Returns the
    pids that survived even that (uninterruptible sleep).
    """
    members = job_members(launcher, socket_folder, {})
    if not launcher_ended(0):
        signal_process(launcher, members.get(launcher), signal.SIGTERM)
        if not launcher_ended(GRACE_SECONDS):
            signal_process(launcher, members.get(launcher), signal.SIGKILL)
    deadline = time.monotonic() + _KILL_SECONDS
    while True:
        members = job_members(launcher, socket_folder, members)
        if not members or time.monotonic() > deadline:
            return sorted(members)
        for pid, started in members.items():
            signal_process(pid, started, signal.SIGKILL)
        time.sleep(_POLL_SECONDS)


def _environment(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


def signal_process(pid: int, started: float | None, number: int) -> None:
    """Signal the process that started then, and no other that got its pid since."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    except OSError:
        descriptor = None  # before Linux 5.3: a moment remains between the check and the signal
    found = procfs.stat(pid)
    try:
        if found is None or found.started != started:
            return
        if descriptor is None:
            os.kill(pid, number)
        else:
            signal.pidfd_send_signal(descriptor, number)
    except OSError:
        pass  # it ended first, or belongs to another user
    finally:
        if descriptor is not None:
            os.close(descriptor)
