"""Find the store that a job's processes connect to, and read it without changing it."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from hangdoc.capture.find import store_client
from hangdoc.capture.read.sockets import Sockets, ports_in_use
from hangdoc.capture.safe.text import read_text
from hangdoc.model.network import Connection, ListeningPort
from hangdoc.model.process import Stack
from hangdoc.model.snapshot import Unavailable
from hangdoc.model.store import RendezvousStore

_STORE_THREAD = "pt_tcpstore"
_MAX_KEYS = 400
"""Of the store, that a snapshot keeps. Judgement."""
_EVERY_ADDRESS = ("::", "0.0.0.0")  # noqa: S104 - what others listen on
_CONNECTED = ("ESTABLISHED", "CLOSE_WAIT")
_OLDEST_TORCH = (2, 2)
"""Older stores use another protocol."""
_VERSION = re.compile(r"""^__version__ = ['"](\d+)\.(\d+)""", re.MULTILINE)
_LIBRARY = re.compile(r"\s(/\S.*)/lib/libtorch_cpu\.so", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Meeting:
    """A store and those of the given processes that are connected to it. ``host``: the one of them that serves it."""

    address: str
    port: int
    host: int | None
    clients: frozenset[int]


def meetings(sockets: Sockets, pids: Collection[int]) -> list[Meeting]:
    """The stores that processes of ``pids`` serve or are connected to, those with the most clients first.

    A store listens on every address, gloo on one: what is sent to a store must never reach gloo. Example: pid 10
    listens on port 29500 of every address and runs a thread of the store's name; 10 and 11 are connected to
    127.0.0.1:29500 → ``[Meeting("127.0.0.1", 29500, host=10, clients={10, 11})]``.
    """
    listening = {entry.port: entry for entry in sockets.listening if entry.address in _EVERY_ADDRESS}
    by_port: dict[int, Meeting] = {}
    for (address, port), members in _clients(sockets, pids, listening).items():
        # The process that serves a store is its client too; other servers of the process (Ray's) are not.
        if not any(entry.pid == listening[port].pid and _goes_to(entry, port) for entry in sockets.connections):
            continue
        known = by_port.get(port)
        joined = frozenset(members) | (known.clients if known else frozenset())
        by_port[port] = Meeting(known.address if known else address, port, listening[port].pid, joined)
    return sorted(by_port.values(), key=lambda meeting: (-len(meeting.clients), meeting.port))


def _clients(
    sockets: Sockets, pids: Collection[int], listening: Mapping[int, ListeningPort]
) -> dict[tuple[str, int], set[int]]:
    """(address, port) of what processes with a store serve → those of ``pids`` that are connected to it."""
    serving: dict[int, bool] = {}
    clients: dict[tuple[str, int], set[int]] = {}
    for entry in sockets.connections:
        owner = listening.get(entry.remote_port)
        if entry.pid not in pids or entry.state not in _CONNECTED or entry.local_port in listening:
            continue
        if entry.pid is None or owner is None or owner.pid is None:
            continue
        if owner.pid not in serving:
            serving[owner.pid] = serves_store(owner.pid)
        if serving[owner.pid]:
            clients.setdefault((entry.remote_address, entry.remote_port), set()).add(entry.pid)
    return clients


def at_address(sockets: Sockets, pids: Collection[int], address: str, port: int) -> Meeting | None:
    """The store at MASTER_ADDR and MASTER_PORT, if one of the ranks is connected to it or serves it."""
    clients = {entry.pid for entry in sockets.connections if _goes_to(entry, port) and entry.pid in pids}
    hosts = [entry for entry in sockets.listening if entry.port == port]
    if any(entry.address not in _EVERY_ADDRESS for entry in hosts):
        return None
    host = hosts[0].pid if hosts else None
    if not clients and host is None:
        return None
    remote = next((entry.remote_address for entry in sockets.connections if _goes_to(entry, port)), address)
    return Meeting(remote, port, host, frozenset(pid for pid in clients if pid is not None))


def serves_store(pid: int) -> bool:
    """True if a thread of the process serves a TCPStore (torch names it pt_tcpstore_uv, before 2.4 pt_tcpstore)."""
    try:
        tids = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208 - as in procfs
    except OSError:
        return False
    return any((read_text(f"/proc/{pid}/task/{tid}/comm", 64) or "").startswith(_STORE_THREAD) for tid in tids)


def read(
    meeting: Meeting, sockets: Sockets, witness: int
) -> tuple[store_client.StoreContent, dict[int, int]] | Unavailable:
    """(the store's contents, pid → rank for the processes it names). ``witness``: a process of the job."""
    version = torch_version(witness)
    if version is not None and version < _OLDEST_TORCH:
        return Unavailable("store", f"the store of torch {version[0]}.{version[1]} uses an older protocol")
    content = store_client.peek(meeting.address, meeting.port)
    if isinstance(content, Unavailable):
        return content
    return content, store_client.ranks_of(content, sockets.listening)


def described(
    meeting: Meeting, content: store_client.StoreContent, sockets: Sockets, ranks: Mapping[int, int]
) -> RendezvousStore:
    """The store as the snapshot keeps it; ``ranks`` maps the job's pids to ranks."""
    default = content.members.get("")
    in_use = ports_in_use(min(ranks)) if ranks else None
    return RendezvousStore(
        address=meeting.address,
        port=meeting.port,
        pid=meeting.host,
        joined=tuple(sorted(default)) if default is not None else None,
        silent=tuple(sorted(rank for rank, ports in default.items() if ports and in_use.isdisjoint(ports)))
        if default is not None and in_use is not None
        else (),
        groups=store_client.groups_of(content, sockets.listening, ranks),
        keys=content.keys[:_MAX_KEYS],
    )


def torch_version(pid: int) -> tuple[int, int] | None:
    """(major, minor) of the torch that the process has loaded; None if unknown."""
    match = _LIBRARY.search(read_text(f"/proc/{pid}/maps", 4 << 20) or "")
    text = read_text(f"/proc/{pid}/root{match[1]}/version.py", 1 << 16) if match else None
    found = _VERSION.search(text or "")
    return (int(found[1]), int(found[2])) if found else None


_RANK_AND_WORLD = (("rank", "world_size"), ("group_rank", "group_size"), ("rank", "world"))


def rank_in_locals(stack: Stack) -> tuple[int, int] | None:
    """(rank, world size) from the frames of torch.distributed that join the job (2.0 to 2.13), outermost first; else
    from those of the program that call them so."""
    outermost_first = stack[::-1]
    for frame in sorted(outermost_first, key=lambda frame: "torch/distributed/" not in frame.file):
        numbers = (local for local in frame.locals if local.value.isdecimal() and len(local.value) < 8)
        values = {local.name: int(local.value) for local in numbers}
        for rank, world in _RANK_AND_WORLD:
            if rank in values and values[rank] < values.get(world, 0):
                return values[rank], values[world]
    return None


def _goes_to(entry: Connection, port: int) -> bool:
    return entry.remote_port == port and entry.state in (*_CONNECTED, "SYN_SENT")
