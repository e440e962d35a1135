"""What the objects in a job's frames say, read from the memory of its process: attributes, groups, peers.

py-spy names an object by its type and address alone. Where a frame holds one, the plain values of its attributes, the
members of a process group and the peers of a message say what the frame waits for. Only names and numbers are read:
no string of the job's, and nothing runs there.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from hangdoc.capture.read.python_memory import ODD, Memory, OddError, python_version
from hangdoc.model.process import Local

# Bounds, chosen by hand: a frame that waits holds a few objects of the user's, with a dozen attributes each.
_MOST_SHOWN = 48
_MOST_MESSAGES = 64
_MOST_MEMBERS = 4096
_STEPS = 2
"""Attributes of attributes: `self.cfg` → `self.cfg.limit`."""

_OBJECT = re.compile(r"<([A-Za-z_][\w.]*) at (0x[0-9a-f]{4,16})>")
_GROUP_NAME = re.compile(r"\d{1,9}|[0-9a-f]{40}|default_pg")
_DEEP = frozenset({"module", "function", "builtin_function_or_method", "type", "method", "Logger", "Thread"})
"""Types whose attributes say nothing of the program."""


_Group = tuple[str, tuple[int, ...]]
"""(name, members in the order of the group's own ranks)."""


@dataclass
class Objects(Memory):
    """The memory of one process."""

    _groups: dict[int, _Group] | None = None

    def attributes(self, name: str, text: str) -> list[Local]:
        """The plain attributes of a local, as locals: `self` → `self.step` = 3, `self.cfg.limit` = 0.5.

        Of a process group its members (`group.members` = 0-3), of messages in a list their kinds and peers
        (`ops.messages` = isend 2, irecv 0).
        """
        found: list[Local] = []
        try:
            self._add(name, text, found)
        except ODD:
            return []
        return found

    def group_of_call(self, values: Mapping[str, str]) -> list[Local]:
        """The name and members of the group of a call of torch's, by its frame's locals as py-spy shows them.

        That is `group`, an object or its name, or the dimension `mesh_dim` (the only one) of a device mesh. Example:
        `group.name` = 5, `group.members` = 0-3,8.
        """
        try:
            name, members = self._group_among(values)
        except ODD:
            return []
        return [Local("group.name", name), Local("group.members", _ranges(members))] if members else []

    def _group_among(self, values: Mapping[str, str]) -> _Group:
        name = values.get("group_name", values.get("group", "")).strip("\"'")
        shown = _OBJECT.fullmatch(values.get("group", ""))
        if shown is not None and _is_group(shown[1]):
            return self._group(int(shown[2], 16))
        mesh = next(
            (found for text in values.values() if (found := _OBJECT.fullmatch(text)) and _is_mesh(found[1])), None
        )
        if mesh is not None:
            dimensions = dict(self.names(int(mesh[2], 16))).get("_dim_group_names", 0)
            groups = [self._digits(item) for item in self.items(dimensions)] if self.kind(dimensions) == "list" else []
            at = values.get("mesh_dim", "0" if len(groups) == 1 else "")
            name = groups[int(at)] if at.isdecimal() and int(at) < len(groups) else ""
        known = (self._groups or {}).values()
        return next((group for group in known if name and group[0] == name), ("", ()))

    def find_groups(self, texts: Iterable[str]) -> None:
        """Find torch's table of groups by way of one of these objects: its type's functions know the modules."""
        for text in texts:
            shown = _OBJECT.match(text)
            if self._groups is not None or shown is None or _is_group(shown[1]) or min(self._left, self._reads) <= 0:
                continue
            try:
                self._groups = self._groups_by(int(shown[2], 16), shown[1])
            except ODD:
                continue

    # --- what the objects are ------------------------------------------------------------------------------------

    def _add(self, name: str, text: str, found: list[Local]) -> None:
        shown = _OBJECT.fullmatch(text)
        if shown is not None:
            self._add_object(name, int(shown[2], 16), shown[1], found, _STEPS)
        elif text.startswith("[<") and "P2POp at 0x" in text and "..." not in text:
            batch = [each for each in _OBJECT.finditer(text) if each[1].endswith("P2POp")]
            peers = [self._message(int(each[2], 16)) for each in batch[:_MOST_MESSAGES]]
            found += [Local(f"{name}.messages", ", ".join(peers))] if peers else []

    def _add_object(self, name: str, at: int, kind: str, found: list[Local], steps: int) -> None:
        if self.kind(at) != kind.rpartition(".")[2] or kind in _DEEP:
            return
        if _is_group(kind):
            members = _ranges(self._group(at)[1])
            found += [Local(f"{name}.members", members)] if members else []
            return
        for attribute, value in self.names(at):
            if len(found) >= _MOST_SHOWN:
                return
            private = "__" if steps == _STEPS else "_"
            own = self.kind(value)
            if attribute != "_modules" and (attribute.startswith(private) or not attribute.isidentifier()):
                continue
            plain = self.plain(value)
            if plain:
                found.append(Local(f"{name}.{attribute}", plain))
            elif attribute != "_modules" and (count := self.length(value)) >= 0:
                found.append(Local(f"{name}.len({attribute})", str(count)))
            elif own == "dict" and attribute == "_modules" and steps > 1:
                for module, inner in self.entries(value):
                    self._add_further(f"{name}.{module}", inner, found, steps - 1)
            elif steps > 1:
                self._add_further(f"{name}.{attribute}", value, found, steps - 1)

    def _add_further(self, name: str, at: int, found: list[Local], steps: int) -> None:
        with suppress(*ODD):
            self._add_object(name, at, self.kind(at), found, steps)

    def _message(self, at: int) -> str:
        """'isend 2': the kind and the peer of a P2POp."""
        names = dict(self.names(at))
        op, peer = names.get("op", 0), self.plain(names.get("peer", 0))
        kind = self.function_name(op) if op else ""
        if kind not in ("isend", "irecv") or not peer.isdecimal():
            raise OddError
        return f"{kind} {peer}"

    def _group(self, at: int) -> _Group:
        return (self._groups or {}).get(at, ("", ()))

    def _groups_by(self, at: int, kind: str) -> dict[int, _Group] | None:
        if self.kind(at) != kind.rpartition(".")[2]:
            raise OddError
        tables = (self._table(names) for names in self.globals_of_methods(at))
        return next((table for table in tables if table is not None), None)

    def _table(self, names: int) -> dict[int, _Group] | None:
        """The groups by address, from the globals of any module that knows torch or torch.distributed."""
        found = self.find(names, "_pg_names", "_pg_group_ranks", "dist", "distributed_c10d", "c10d", "torch")
        if "_pg_group_ranks" not in found:
            package = self.module(found.get("dist", 0), "distributed_c10d").get("distributed_c10d", 0)
            calls = found.get("distributed_c10d", 0) or found.get("c10d", 0) or package
            if not calls:
                package = self.module(found.get("torch", 0), "distributed").get("distributed", 0)
                calls = self.module(package, "distributed_c10d").get("distributed_c10d", 0)
            found = self.module(calls, "_pg_names", "_pg_group_ranks")
        if "_pg_group_ranks" not in found or "_pg_names" not in found:
            return None
        called = {key: self._digits(value) for key, value in self.pairs(found["_pg_names"])}
        table = {}
        for group, ranks in self.pairs(found["_pg_group_ranks"]):
            order = {self.whole(inner): self.whole(outer) for outer, inner in self.pairs(ranks)}
            table[group] = (called.get(group, ""), tuple(order[position] for position in sorted(order)))
        return table

    def _digits(self, at: int) -> str:
        """The name of a group, a count or a hash that torch gives it; '' for any other string."""
        name = self.text(at)
        return name if _GROUP_NAME.fullmatch(name) else ""


def open_objects(pid: int, files: Iterable[str]) -> Objects | None:
    """The objects of a process that runs a CPython of known layout; None for any other.

    ``files``: those of its frames, which name the version where the interpreter's own name does not.
    """
    minor = python_version(pid, files)
    try:
        return None if minor is None else Objects(minor, os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC))
    except OSError:
        return None


def _is_group(kind: str) -> bool:
    return kind.rpartition(".")[2] == "ProcessGroup"


def _is_mesh(kind: str) -> bool:
    return kind.rpartition(".")[2] == "DeviceMesh"


def _ranges(members: tuple[int, ...]) -> str:
    """Ranks in few characters: (0, 1, 2, 5) → '0-2,5'."""
    if len(members) > _MOST_MEMBERS:
        return ""
    spans: list[list[int]] = []
    for rank in sorted(members):
        if spans and rank == spans[-1][1] + 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)
