"""Find out how processes ended that are not our children, for which waitpid(2) does not work.

A pidfd taken while the process lives answers PIDFD_GET_INFO with its exit status even after its parent
reaped it (Linux >= 6.15, <linux/pidfd.h>). On older kernels only the moment between death and reaping is
left: the zombie's /proc/PID/stat.
"""

from __future__ import annotations

import fcntl
import os
import select
import struct
import time

from hangdoc.capture.read import procfs
from hangdoc.capture.safe.text import read_text
from hangdoc.model.process import ProcessExit

_PIDFD_GET_INFO = 0xC040FF0B  # _IOWR(0xFF, 11, struct pidfd_info) with the first version's 64 bytes
_INFO_SIZE = 64
_WANT_EXIT = 1 << 3  # PIDFD_INFO_EXIT
_EXIT_CODE_AT = 60


class ExitWatch:
    """Remembers living processes and reports once how each of them ended.

    Not for several threads at once.
    """

    def __init__(self) -> None:
        self._descriptors: dict[int, int | None] = {}
        self._starts: dict[int, float] = {}
        self._groups: dict[int, tuple[str | None, int | None]] = {}
        self._zombies: dict[int, int] = {}

    def add(self, pid: int) -> None:
        """Watch a process from now on; adding one twice, or one that is gone, does no harm."""
        if pid in self._descriptors:
            return
        entry = procfs.stat(pid)
        if entry is None:
            return
        try:
            self._descriptors[pid] = os.pidfd_open(pid)
        except OSError:  # Linux < 5.3, no descriptors left, or just gone: /proc has to do
            self._descriptors[pid] = None
        self._starts[pid] = entry.started
        group = _memory_group(pid)
        self._groups[pid] = (group, _oom_kills(group))

    def __contains__(self, pid: object) -> bool:
        return pid in self._descriptors

    def poll(self) -> dict[int, ProcessExit]:
        """Those that ended since the last call, by pid; they are watched no longer. Zombies have ended."""
        ended: dict[int, ProcessExit] = {}
        for pid in list(self._descriptors):
            status = self._status(pid)
            if status is None:
                continue
            ended[pid] = self._describe(pid, status if status >= 0 else None)
            self._forget(pid)
        return ended

    def wait(self, seconds: float) -> None:
        """Sleep until a watched process ends, at most ``seconds`` (just that long before Linux 5.3)."""
        poller = select.poll()
        for descriptor in self._descriptors.values():
            if descriptor is not None:
                poller.register(descriptor, select.POLLIN)
        poller.poll(max(0.0, seconds) * 1000)

    def close(self) -> None:
        """Let go of all processes."""
        for pid in list(self._descriptors):
            self._forget(pid)

    def _status(self, pid: int) -> int | None:
        """The wait status; -1: it ended and its status is unknown; None: it still runs."""
        entry = procfs.stat(pid)
        same = entry is not None and abs(entry.started - self._starts[pid]) < 1e-6
        if same and entry is not None and entry.state not in "ZX":
            return None
        if same and entry is not None:
            # exit_code reads 0 for those who may not trace it: then the pidfd knows better.
            self._zombies[pid] = entry.exit_code
        descriptor = self._descriptors[pid]
        if descriptor is not None:
            if not _readable(descriptor):
                return None  # the main thread is a zombie and other threads live on
            status = exit_status(descriptor)
            if status is not None:
                return status
        return self._zombies.get(pid, -1)

    def _describe(self, pid: int, status: int | None) -> ProcessExit:
        group, before = self._groups[pid]
        now = _oom_kills(group)
        return ProcessExit(
            at=time.time(),
            status=os.WEXITSTATUS(status) if status is not None and os.WIFEXITED(status) else None,
            signal=os.WTERMSIG(status) if status is not None and os.WIFSIGNALED(status) else None,
            oom_kills=max(0, now - before) if now is not None and before is not None else None,
        )

    def _forget(self, pid: int) -> None:
        descriptor = self._descriptors.pop(pid)
        if descriptor is not None:
            os.close(descriptor)
        self._zombies.pop(pid, None)
        self._starts.pop(pid, None)
        self._groups.pop(pid, None)


def exit_status(pidfd: int) -> int | None:
    """The wait status of an ended process, as waitpid gives it; None: it runs, or the kernel is too old."""
    buffer = bytearray(_INFO_SIZE)
    struct.pack_into("=Q", buffer, 0, _WANT_EXIT)
    try:
        fcntl.ioctl(pidfd, _PIDFD_GET_INFO, buffer)
    except OSError:
        return None
    answered = struct.unpack_from("=Q", buffer, 0)[0]
    if not answered & _WANT_EXIT:
        return None
    status: int = struct.unpack_from("=i", buffer, _EXIT_CODE_AT)[0]
    return status


def _readable(pidfd: int) -> bool:
    """A pidfd becomes readable when the whole process has ended."""
    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    return bool(poller.poll(0))


def _memory_group(pid: int) -> str | None:
    """The folder of the process's control group that counts memory events (version 2 hierarchy)."""
    for line in (read_text(f"/proc/{pid}/cgroup", 1 << 16) or "").splitlines():
        if line.startswith("0::/"):
            return "/sys/fs/cgroup" + line[3:].rstrip("/")
    return None


def _oom_kills(group: str | None) -> int | None:
    text = read_text(f"{group}/memory.events", 4096) if group else None
    for line in (text or "").splitlines():
        name, _, count = line.partition(" ")
        if name == "oom_kill" and count.isdigit():
            return int(count)
    return None
