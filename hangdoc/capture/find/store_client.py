"""Read a job's TCPStore from outside: which ranks have joined, and which groups they made.

Speaks the store's own protocol over one connection (``store_protocol``) and asks only for the list of keys and for the
values of keys that are there.
"""

from __future__ import annotations

import re
import struct
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import TypeVar

from hangdoc.capture.find.store_protocol import StoreConnection
from hangdoc.capture.safe.text import clean
from hangdoc.model.journal import ProcessGroup
from hangdoc.model.network import ListeningPort
from hangdoc.model.snapshot import Unavailable

_T = TypeVar("_T")

# Limits on what a server may send. Judgement.
_MAX_KEYS = 20_000
_MAX_LENGTH = 1 << 16
_MAX_BYTES = 8 << 20
_MAX_GLOO_KEYS = 4096
_SECONDS = 0.5
"""For the whole conversation; connecting and listing the keys takes 2 to 4 ms (measured). Judgement."""

# '/default_pg/0//cpu//0/3': rank 3 of the default group has published where its gloo listens;
# '/default_pg/0//1//cpu//0/0': the first member of the group named '1'. The prefix of a restart may come first.
_GLOO_KEY = re.compile(r"(?:^|/)default_pg/\d+//(?:(?P<group>.+?)//)?cpu//\d+/(?P<member>\d{1,7})$")
_AF_INET, _AF_INET6 = 2, 10
_SOCKADDR_WITHIN = 40
"""Bytes at the start of a published address within which its sockaddr begins (at 18 in gloo of torch 2.13)."""


@dataclass(frozen=True, slots=True)
class StoreContent:
    """What a store holds. ``members``: per group ('' the default one) and member the port it listens on, or what may
    be that port."""

    keys: tuple[str, ...]
    members: Mapping[str, Mapping[int, tuple[int, ...]]]


def peek(address: str, port: int, *, seconds: float = _SECONDS) -> StoreContent | Unavailable:
    """The store's keys and the addresses published in it, within ``seconds``."""

    def read(store: StoreConnection) -> tuple[list[bytes], dict[bytes, bytes]]:
        keys = store.keys(_MAX_KEYS)
        return keys, {key: store.value(key) for key in [key for key in keys if _is_gloo(key)][:_MAX_GLOO_KEYS]}

    answer = _asked(address, port, seconds, read)
    if isinstance(answer, Unavailable):
        return answer
    keys, values = answer
    members: dict[str, dict[int, tuple[int, ...]]] = {}
    for key, value in values.items():
        match = _GLOO_KEY.search(key.decode("utf-8", "replace"))
        if match is not None:
            members.setdefault(match["group"] or "", {})[int(match["member"])] = _ports_in(value)
    names = tuple(sorted(clean(key.decode("utf-8", "backslashreplace"), 200) for key in keys))
    return StoreContent(names, members)


def key_names(address: str, port: int, *, seconds: float = _SECONDS) -> list[str] | Unavailable:
    """The names of the store's keys, within ``seconds``; no value is asked for."""
    found = _asked(address, port, seconds, lambda store: store.keys(_MAX_KEYS))
    return found if isinstance(found, Unavailable) else [key.decode("utf-8", "backslashreplace") for key in found]


def _asked(address: str, port: int, seconds: float, ask: Callable[[StoreConnection], _T]) -> _T | Unavailable:
    """What the store answers over one connection, within ``seconds``."""
    until = time.monotonic() + seconds
    try:
        store = StoreConnection(address, port, seconds=seconds, largest_value=_MAX_LENGTH, most_bytes=_MAX_BYTES)
        with closing(store):
            store.end_at(until)
            return ask(store)
    except TimeoutError:
        return _no_answer(address, port, "no answer in time", "")
    except (OSError, ValueError) as error:
        remedy = "stores of torch before 2.9 do not list their keys" if isinstance(error, EOFError) else ""
        return _no_answer(address, port, clean(str(error), 200), remedy)


def ranks_of(content: StoreContent, listening: Iterable[ListeningPort]) -> dict[int, int]:
    """Pid → global rank, by the ports that the default group's members published; empty unless each is one of ours."""
    members = _owners(content, listening).get("", {})
    found = {pid: rank for rank, pid in members.items()}
    return found if len(found) == len(members) else {}


def groups_of(
    content: StoreContent, listening: Iterable[ListeningPort], ranks: Mapping[int, int]
) -> tuple[ProcessGroup, ...]:
    """The gloo groups in the store whose members are all known; ``ranks`` maps pids to global ranks."""
    owners = _owners(content, listening)
    groups = []
    for name, published in sorted(content.members.items()):
        known = [ranks.get(owners[name].get(member, -1)) for member in range(len(published))]
        members = tuple(rank for rank in known if rank is not None)
        if len(members) == len(published):
            description = "default_pg" if not name else ""
            groups.append(ProcessGroup(clean(name, 200) or "0", members, description, backend="gloo"))
    return tuple(groups)


def _owners(content: StoreContent, listening: Iterable[ListeningPort]) -> dict[str, dict[int, int]]:
    """Name of the group → member → pid of the process that listens on the port that the member published."""
    pids = {port.port: port.pid for port in listening if port.pid is not None}
    return {
        name: {member: pids[port] for member, ports in members.items() for port in ports if port in pids}
        for name, members in content.members.items()
    }


def _is_gloo(key: bytes) -> bool:
    return _GLOO_KEY.search(key.decode("utf-8", "replace")) is not None


def _ports_in(value: bytes) -> tuple[int, ...]:
    """What may be the port of the sockaddr in a published gloo address; what surrounds it is gloo's own."""
    found = []
    for offset in range(0, min(len(value) - 24, _SOCKADDR_WITHIN), 2):
        family, port = struct.unpack_from("=H", value, offset)[0], struct.unpack_from("!H", value, offset + 2)[0]
        address = value[offset + 4 : offset + 8] if family == _AF_INET else value[offset + 8 : offset + 24]
        if family in (_AF_INET, _AF_INET6) and port and any(address):
            found.append(int(port))
    return tuple(found)


def _no_answer(address: str, port: int, why: str, remedy: str) -> Unavailable:
    return Unavailable("store", f"the job's store at {clean(address, 100)}:{port}: {why}", remedy)
