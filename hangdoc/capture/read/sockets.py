"""TCP sockets of the job's processes, from /proc/PID/net/tcp{,6} of each network namespace (proc(5))."""

from __future__ import annotations

import ipaddress
import os
import struct
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice

from hangdoc.capture.read import procfs
from hangdoc.capture.safe.text import read_link, read_text
from hangdoc.model.network import Connection, ListeningPort
from hangdoc.model.process import OpenFile
from hangdoc.model.snapshot import Unavailable

# include/net/tcp_states.h
_STATES = (
    *("", "ESTABLISHED", "SYN_SENT", "SYN_RECV", "FIN_WAIT1", "FIN_WAIT2", "TIME_WAIT"),
    *("CLOSE", "CLOSE_WAIT", "LAST_ACK", "LISTEN", "CLOSING", "NEW_SYN_RECV"),
)
_MAX_TABLE = 32 << 20
"""Bytes of /proc/PID/net/tcp: 200,000 sockets, at 150 bytes each. Judgement."""
_Ends = tuple[str, int, str, int]
_HEX = frozenset("0123456789ABCDEFabcdef")
_MAX_CONNECTIONS = 20_000
"""That a snapshot keeps; each pair of ranks has one for each gloo group. Judgement."""


@dataclass(frozen=True)
class Sockets:
    """The sockets that the given processes have open. ``by_inode``: inode of 'socket:[inode]' → its entry."""

    listening: tuple[ListeningPort, ...] = ()
    connections: tuple[Connection, ...] = ()
    by_inode: dict[int, ListeningPort | Connection] = field(default_factory=dict)
    unavailable: tuple[Unavailable, ...] = ()

    @cached_property
    def owners(self) -> dict[_Ends, tuple[int, ...]]:
        """The two addresses of each connection, its own first → the processes that have it."""
        found: dict[_Ends, tuple[int, ...]] = {}
        for each in self.connections:
            if each.pid is not None:
                ends = (each.local_address, each.local_port, each.remote_address, each.remote_port)
                found[ends] = (*found.get(ends, ()), each.pid)
        return found

    def listener(self, connection: Connection) -> int | None:
        """The process that listens where the connection leads to; None if it is none of these, or of several."""
        there = (connection.remote_address, *_ANY)
        pids = {p.pid for p in self.listening if p.port == connection.remote_port and p.address in there}
        return pids.pop() if len(pids) == 1 else None


_ANY = ("0.0.0.0", "::")  # noqa: S104 - addresses that are read, not bound


def read_sockets(pids: Iterable[int]) -> Sockets:
    """TCP sockets that the given processes hold.

    Works inside other network namespaces. A socket that several processes share is given to the first of
    them.
    """
    owners: dict[int, int] = {}
    namespaces: dict[str, int] = {}
    closed: list[int] = []
    for pid in pids:
        inodes = socket_inodes(pid)
        if inodes is None:
            if procfs.exists(pid):
                closed.append(pid)
            continue
        for inode in inodes:
            owners.setdefault(inode, pid)
        namespaces.setdefault(read_link(f"/proc/{pid}/ns/net") or str(pid), pid)
    found: dict[int, ListeningPort | Connection] = {}
    for pid in namespaces.values():
        for table in ("tcp", "tcp6"):
            found.update(parse_table(read_text(f"/proc/{pid}/net/{table}", _MAX_TABLE) or "", owners))
    connections = (entry for entry in found.values() if isinstance(entry, Connection))
    return Sockets(
        listening=tuple(entry for entry in found.values() if isinstance(entry, ListeningPort)),
        connections=tuple(islice(connections, _MAX_CONNECTIONS)),
        by_inode=found,
        unavailable=_closed(closed),
    )


def _closed(pids: list[int]) -> tuple[Unavailable, ...]:
    if not pids:
        return ()
    whose = f"process {pids[0]}" if len(pids) == 1 else f"{len(pids)} processes"
    why = f"the open files of {whose} cannot be read"
    return (Unavailable("sockets", why, "run hangdoc as the job's user or as root"),)


def listening_ports(pids: Iterable[int]) -> tuple[ListeningPort, ...]:
    """The TCP ports that the given processes listen on; see ``read_sockets``."""
    return read_sockets(pids).listening


def ports_in_use(pid: int) -> frozenset[int] | None:
    """The TCP ports on which any process listens in this process's network namespace; None if they cannot be read."""
    rows = _listening_rows(pid)
    if rows is None:
        return None
    ports = (row[1].rpartition(":")[2] for row in rows)
    return frozenset(int(port, 16) for port in ports if len(port) == 4 and set(port) <= _HEX)


def listening_inodes(pid: int, port: int) -> frozenset[int]:
    """Inode numbers of the sockets, whoever has them, that listen on the port in this process's network namespace."""
    at = f":{port:04X}"
    rows = _listening_rows(pid) or ()
    return frozenset(int(row[9]) for row in rows if row[1].endswith(at) and len(row) > 9 and row[9].isdigit())


def _listening_rows(pid: int) -> list[list[str]] | None:
    """The words of each row about a listening socket in the process's network namespace; None if unreadable."""
    tables = [read_text(f"/proc/{pid}/net/{table}", _MAX_TABLE) for table in ("tcp", "tcp6")]
    if tables[0] is None:
        return None
    rows = (line.split() for text in tables for line in (text or "").splitlines()[1:])
    listen = f"{_STATES.index('LISTEN'):02X}"
    return [row for row in rows if len(row) > 3 and row[3] == listen]


def other_ends(pid: int, connections: Iterable[Connection]) -> dict[int, int]:
    """Inode → user of the sockets at the other end of ``connections``, as far as they are in this process's network.

    ``connections`` are its own. 127.0.0.1:40000 to 127.0.0.1:29500 → the socket 127.0.0.1:29500 to 127.0.0.1:40000.
    """
    wanted = {(end.remote_address, end.remote_port, end.local_address, end.local_port) for end in connections}
    marks = tuple(f":{port:04X} " for _, port, _, _ in wanted)
    found: dict[int, int] = {}
    for table in ("tcp", "tcp6"):
        lines = (read_text(f"/proc/{pid}/net/{table}", _MAX_TABLE) or "").splitlines()
        near = [line for line in lines[1:] if any(mark in line for mark in marks)]
        users = _users(near)
        for inode, entry in parse_table("\n".join(["", *near]), users):
            if isinstance(entry, Connection) and _ends(entry) in wanted:
                found[inode] = users[inode]
    return found


def _ends(connection: Connection) -> tuple[str, int, str, int]:
    """(local address, local port, remote address, remote port)"""
    return connection.local_address, connection.local_port, connection.remote_address, connection.remote_port


def _users(lines: list[str]) -> dict[int, int]:
    """Inode → user of each socket in lines of /proc/net/tcp; inode 0 is of no process any more."""
    rows = [words for line in lines if len(words := line.split()) > 9 and words[7].isdigit() and words[9].isdigit()]
    return {int(words[9]): int(words[7]) for words in rows if words[9] != "0"}


def socket_inodes(pid: int) -> list[int] | None:
    """Inode numbers of the process's open sockets; None where they cannot be read."""
    try:
        descriptors = os.listdir(f"/proc/{pid}/fd")  # noqa: PTH208 - ten times cheaper than pathlib
    except OSError:
        return None
    found = []
    for descriptor in descriptors:
        target = read_link(f"/proc/{pid}/fd/{descriptor}") or ""
        if target.startswith("socket:[") and target[8:-1].isdigit():
            found.append(int(target[8:-1]))
    return found


def parse_table(text: str, owners: Mapping[int, int]) -> Iterator[tuple[int, ListeningPort | Connection]]:
    """(inode, socket) for each line of /proc/net/tcp or tcp6 whose inode is in ``owners`` (inode → pid)."""
    for line in text.splitlines()[1:]:
        words = line.split()
        if len(words) < 10 or not words[9].isdigit():
            continue
        inode = int(words[9])
        owner = owners.get(inode)
        if owner is None:
            continue
        try:
            address, port = _address(words[1])
            state = int(words[3], 16)
            name = _STATES[state] if state < len(_STATES) else str(state)
            if name == "LISTEN":
                yield inode, ListeningPort(owner, address, port)
                continue
            remote, remote_port = _address(words[2])
            send, _, receive = words[4].partition(":")
            connection = Connection(
                pid=owner,
                local_address=address,
                local_port=port,
                remote_address=remote,
                remote_port=remote_port,
                state=name,
                receive_queue=int(receive, 16),
                send_queue=int(send, 16),
                retransmits=int(words[6], 16),
            )
            yield inode, connection
        except (ValueError, struct.error):
            continue


def name_sockets(files: Iterable[OpenFile], sockets: Sockets) -> tuple[OpenFile, ...]:
    """``files`` with TCP sockets named by their addresses and the job's process at the other end."""
    named = []
    for file in files:
        inode = file.target[8:-1] if file.target.startswith("socket:[") else ""
        entry = sockets.by_inode.get(int(inode)) if inode.isdigit() else None
        if isinstance(entry, ListeningPort):
            named.append(replace(file, target=f"socket:tcp listening on {entry.address}:{entry.port}"))
        elif entry is not None:
            local = f"{entry.local_address}:{entry.local_port}"
            remote = f"{entry.remote_address}:{entry.remote_port}"
            other = (entry.remote_address, entry.remote_port, entry.local_address, entry.local_port)
            peers, state = sockets.owners.get(other, ()), entry.state
            listener = sockets.listener(entry) if not peers and state == "ESTABLISHED" else None
            if listener is not None:  # the kernel has connected them, the process has not taken it from its backlog
                peers, state = (listener,), f"{state}, not accepted"
            named.append(replace(file, target=f"socket:tcp {local} to {remote} ({state})", peers=peers))
        else:
            named.append(file)
    return tuple(named)


def _address(text: str) -> tuple[str, int]:
    """(address, port). '0100007F:1F90' → ('127.0.0.1', 8080): words of 32 bits in the machine's byte order."""
    host, _, port = text.partition(":")
    raw = bytes.fromhex(host)
    words = struct.unpack(f">{len(raw) // 4}I", raw)
    order = "<" if sys.byteorder == "little" else ">"
    packed = struct.pack(f"{order}{len(words)}I", *words)
    address = ipaddress.ip_address(packed)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address), int(port, 16)
