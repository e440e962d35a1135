"""All processes of this machine: which started which and, when asked for, their users and variables.

`watch` reads the table every few seconds and asks for the variables of its own command's processes alone; `attach` asks
for everybody's.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from hangdoc.capture.read import procfs
from hangdoc.capture.read import stacks as py_spy
from hangdoc.capture.read.sockets import Sockets, other_ends, read_sockets, socket_inodes
from hangdoc.capture.read.stacks import PythonThread
from hangdoc.capture.safe.text import read_bytes, read_link
from hangdoc.model.network import Connection
from hangdoc.model.snapshot import Unavailable

_MAPS_BYTES = 4 << 20
"""Of a memory map: some 40,000 lines, far more than a rank has. Judgement."""
_TORCH_LIBRARIES = (b"/libtorch_cpu.so", b"/libtorch_python.so", b"/libtorch.so")


@dataclass(frozen=True)
class Entry:
    """One process as its stat line shows it. What costs more is read when it is first asked for, and kept."""

    pid: int
    ppid: int
    started: float
    """Seconds since boot."""
    state: str = "S"
    comm: str = ""
    cpu: float = 0.0
    """CPU time in seconds."""
    children_cpu: float = 0.0
    """CPU time of the children it has waited for, in seconds."""

    @property
    def alive(self) -> bool:
        """Neither a zombie nor dead."""
        return self.state not in "ZX"

    @cached_property
    def argv(self) -> tuple[str, ...]:
        """Its command line; empty for the dead and where it cannot be read."""
        return procfs.argv(self.pid) if self.alive else ()

    @cached_property
    def environment(self) -> Mapping[str, str] | None:
        """Its allow-listed variables; None: they may not be read (or it is a kernel thread, which has none)."""
        return procfs.environment(self.pid) if self.alive else None

    @cached_property
    def user(self) -> int:
        """The id of the user it belongs to; -1 where it is gone."""
        try:
            return os.stat(f"/proc/{self.pid}").st_uid  # noqa: PTH116 - as the rest of /proc is read
        except OSError:
            return -1

    @property
    def variables(self) -> Mapping[str, str]:
        """The environment; empty where it cannot be read."""
        return self.environment or {}


@dataclass
class ProcessTable:
    """All processes by pid, and facts about single ones that take longer to read, each read once."""

    processes: Mapping[int, Entry]
    children: dict[int, list[int]] = field(init=False)
    _torch: dict[int, bool | None] = field(default_factory=dict, init=False)
    _python: dict[int, bool] = field(default_factory=dict, init=False)
    _stacks: dict[int, tuple[PythonThread, ...] | Unavailable] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.children = {}
        for entry in sorted(self.processes.values(), key=lambda entry: (entry.started, entry.pid)):
            self.children.setdefault(entry.ppid, []).append(entry.pid)

    def __contains__(self, pid: object) -> bool:
        return pid in self.processes

    def __getitem__(self, pid: int) -> Entry:
        return self.processes[pid]

    def ancestors(self, pid: int) -> list[int]:
        """The parents of ``pid``, nearest first, up to the oldest that is seen."""
        found: list[int] = []
        while (entry := self.processes.get(pid)) is not None and entry.ppid in self.processes:
            pid = entry.ppid
            if pid in found:  # a table read while pids were given anew
                break
            found.append(pid)
        return found

    def below(self, pid: int) -> list[int]:
        """All processes below ``pid``, without it, parents before children."""
        order: list[int] = []
        queue = list(self.children.get(pid, ()))
        seen = {pid}
        while queue:
            child = queue.pop(0)
            if child not in seen:
                seen.add(child)
                order.append(child)
                queue.extend(self.children.get(child, ()))
        return order

    def is_python(self, pid: int) -> bool:
        """Whether the process is a Python interpreter, by its program or, where that is hidden, by its torch."""
        if pid not in self._python:
            self._python[pid] = self.read_is_python(pid)
        return self._python[pid]

    def has_torch(self, pid: int) -> bool | None:
        """Whether the process has loaded libtorch; None: its memory map cannot be read."""
        if pid not in self._torch:
            self._torch[pid] = self.read_has_torch(pid)
        return self._torch[pid]

    def stacks(self, pids: Iterable[int]) -> Mapping[int, tuple[PythonThread, ...] | Unavailable]:
        """Python stacks of the processes, read once each."""
        wanted = list(pids)
        unread = [pid for pid in wanted if pid not in self._stacks]
        self._stacks.update(self.read_stacks(unread))
        return {pid: self._stacks[pid] for pid in wanted}

    # What tests replace: everything that looks at a process after the table was read.

    def read_is_python(self, pid: int) -> bool:
        """Ask /proc; see ``is_python``."""
        return procfs.is_python(pid) or (read_link(f"/proc/{pid}/exe") is None and self.has_torch(pid) is True)

    def read_has_torch(self, pid: int) -> bool | None:
        """Ask /proc; see ``has_torch``."""
        data = read_bytes(f"/proc/{pid}/maps", _MAPS_BYTES)
        if data is None:
            return None
        return any(name in data for name in _TORCH_LIBRARIES)

    def read_stacks(self, pids: list[int]) -> Mapping[int, tuple[PythonThread, ...] | Unavailable]:
        """Ask py-spy; see ``stacks``."""
        return py_spy.dump(pids)

    def sockets(self, pids: Iterable[int]) -> Sockets:
        """The TCP sockets of the processes."""
        return read_sockets(pids)

    def other_ends(self, pid: int, connections: Iterable[Connection]) -> Mapping[int, int]:
        """Inode → user of the sockets on this host at the other end of connections of ``pid``."""
        return other_ends(pid, connections)

    def socket_inodes(self, pid: int) -> Iterable[int]:
        """The sockets that the process has open; none where that cannot be read."""
        return socket_inodes(pid) or ()

    def network_namespace(self, pid: int) -> str:
        """Names the network that the process sees; '' where it cannot be read."""
        return read_link(f"/proc/{pid}/ns/net") or ""


def read_table() -> ProcessTable:
    """Read the stat line of every process: some 15 µs each."""
    return ProcessTable(
        {
            pid: Entry(pid, seen.ppid, seen.started, seen.state, seen.comm, seen.cpu, seen.children_cpu)
            for pid, seen in procfs.table().items()
        }
    )
