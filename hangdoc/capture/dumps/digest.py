"""One dump, made as small as what is new in it. Runs in a worker, under its limits.

The calls of a rank are rows of a few *templates* (group, operation, sizes, stack, state), each with numbers of its own.
Ranks of one behaviour have equal rows: their times, threads, and names of groups apart, which their answers carry.
"""

from __future__ import annotations

import hashlib
import re
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any

from hangdoc.capture.read.flight_recorder import Members, Reader, StackTable, counters, groups_of, has_known_schema
from hangdoc.model.journal import Call, PointToPoint

MOST_ENTRIES = 50_000
"""Of a dump, the newest: 25 times what a recorder keeps by default (TORCH_FR_BUFFER_SIZE, torch 2.13)."""

_OF_EACH = {
    "collective_seq_id",
    "op_id",
    "time_created_ns",
    "seq_id",
    "record_id",
    "p2p_seq_id",
    "time_discovered_started_ns",
    "time_discovered_completed_ns",
    "duration_ms",
}
"""Keys whose values differ from call to call, of which the first three are kept; whatever else an entry has belongs
to its template."""
_OF_A_RANK = ("process_group", "pg_id", "thread_id")
"""Keys whose values are a rank's own: groups and threads are numbered as they appear instead."""
_OWN_PLACE = re.compile(r"(?:send|recv) (\d+)(?:->|<-)\d+$")


@dataclass(slots=True)
class Tables:
    """What one worker has seen so far: a later answer refers to it by number."""

    stacks: StackTable = field(default_factory=StackTable.new)
    rows: list[tuple[int, Call | PointToPoint]] = field(default_factory=list)
    """The templates: number of the group, and the call without what is its own."""
    facts: list[tuple[bool, bool, bool]] = field(default_factory=list)
    """Of each template: is it a collective, has it completed, has it a stack?"""
    bodies: dict[bytes, int] = field(default_factory=dict)
    known: dict[Any, int] = field(default_factory=dict)
    """What entries show, group and thread by number → template: those of one behaviour are alike in all dumps."""
    samples: dict[Any, tuple[Any, int]] = field(default_factory=dict)
    """(the template before it, group and thread) → what the latest such entry showed, and its template."""
    frames: dict[Any, int] = field(default_factory=dict)
    lists: Members = field(default_factory=Members)
    members: list[tuple[int, ...]] = field(default_factory=list)
    _templates: dict[tuple[int, Call | PointToPoint], int] = field(default_factory=dict)
    _members: dict[int, int] = field(default_factory=dict)
    _sent: tuple[int, int, int] = (0, 0, 0)

    def add_template(self, group: int, call: Call | PointToPoint) -> int:
        """Its number."""
        number = self._templates.setdefault((group, call), len(self.rows))
        if number == len(self.rows):
            self.rows.append((group, call))
            self.facts.append((isinstance(call, Call), call.completed, call.stack >= 0))
        return number

    def add_members(self, members: tuple[int, ...]) -> int:
        """Number of the list, which ``lists`` knows: equal ones are one object."""
        number = self._members.setdefault(id(members), len(self.members))
        if number == len(self.members):
            self.members.append(members)
        return number

    def news(self) -> dict[str, Any]:
        """The rows that were added since this was asked last."""
        stacks, templates, members = self._sent
        self._sent = (len(self.stacks.stacks), len(self.rows), len(self.members))
        return {
            "stacks": [[(f.file, f.line, f.function) for f in stack] for stack in self.stacks.stacks[stacks:]],
            "templates": [[group, *_row(call)] for group, call in self.rows[templates:]],
            "members": self.members[members:],
        }


def _row(call: Call | PointToPoint) -> list[Any]:
    return [isinstance(call, Call), [getattr(call, name) for name in type(call).__match_args__]]


def digest(dump: dict[Any, Any], tables: Tables) -> dict[str, Any]:
    """What the parent has to know of ``dump``, as JSON has it. Raises ``ValueError`` for what is no dump."""
    version, entries = dump.get("version"), dump.get("entries", [])
    if not isinstance(version, str) or not isinstance(entries, list):
        raise NoDumpError("it has no version and no list of entries")
    if not has_known_schema(version):
        raise ValueError(f"its schema is {version[:40]!r}; this hangdoc knows 2.x")
    forgotten = max(0, len(entries) - MOST_ENTRIES)
    entries = entries[forgotten:]
    if not set(map(type, entries)) <= {dict}:
        entries = [entry for entry in entries if isinstance(entry, dict)]
    rows = _Rows(Reader(tables.stacks), tables, entries)
    rows.read()
    groups = groups_of(dump.get("pg_config"), tables.lists)
    configured = {group.name for group in groups}
    groups += tuple(group for name, group in rows.reader.groups.items() if name not in configured)
    records = rows.column("record_id")
    status = counters(dump.get("pg_status"), rows.reader.names)
    older = records[0] > 0 if records else any(enqueued > 0 for _, enqueued, _ in status)
    return {
        "groups": [[g.name, g.description, tables.add_members(g.members)] for g in groups],
        "names": list(rows.names),
        "places": sorted(rows.places),
        "counters": status,
        "forgotten": min(max(0, records[0]), 1 << 62) if records else 0,
        "first": min(filter(None, rows.columns[-1]), default=0),
        "last": max((*rows.columns[-1], *rows.column("time_discovered_completed_ns")), default=0),
        "active": older and not rows.completed,
        "frames": rows.with_frames,
        "calls": len(rows.templates),
        "own": rows.own(),
        **rows.body(),
    }


class NoDumpError(ValueError):
    """A file of another kind."""


class _Rows:
    """The entries of a dump as numbers of templates, with columns beside them."""

    def __init__(self, reader: Reader, tables: Tables, entries: list[dict[Any, Any]]) -> None:
        self.reader = reader
        self.templates: list[int] = []
        self.names: dict[str, int] = {}
        """Group → its number, as they appear: ranks call groups of other names alike."""
        self.places: set[tuple[int, int]] = set()
        """(number of a group, this rank's place in it), as point-to-point calls give it."""
        self.columns: list[list[int]] = [[], [], []]
        """Of each row: its number in the group, its op_id, when it was issued. Equal ranks differ in the last one."""
        self.completed = False
        self.with_frames = False
        self._tables = tables
        self._entries = entries
        self._common = 0
        """How many parts of a shape, from the first, mean the same in every dump."""
        self._last = -1
        self._places: dict[Any, tuple[int, int]] = {}
        """What is a rank's own in a shape → numbers of the group and of the thread."""
        self._threads: dict[int, int] = {0: 0}
        self._frames: dict[int, int] = {}
        self._pending: dict[int, bool] = {}
        """Template → is it one of a call that has not completed?"""
        self._is_call: dict[int, bool] = {}

    def read(self) -> None:
        """Find each entry's template.

        Most entries are what followed the one before them the last time: so they are compared with that, and only where
        they differ is the table asked, which takes longer.
        """
        entries = self._entries
        if not entries:
            return
        getters: dict[int, tuple[Callable[[dict[Any, Any]], Any], int]] = {}
        get, length = _getter(entries[0])[0], -1
        found: list[int] = []
        shapes: dict[int, Any] = {}
        number_of: dict[Any, int] = {}
        follows: dict[int, int] = {}
        last = -1
        for entry in entries:
            try:
                if len(entry) != length:  # where some have a duration, say
                    length = len(entry)
                    if length not in getters:
                        getters[length] = _getter(entry)
                    get, self._common = getters[length]
                shape = get(entry)
                number = follows.get(last, -1)
                if number < 0 or shapes[number] != shape:
                    key = _key(shape) if number >= 0 else None
                    number = number_of.get(key, -1) if key else -1
                    if number < 0:
                        number = self._template(entry, shape)
                        shapes.setdefault(number, shape)
                        if key:
                            number_of[key] = number
                    follows[last] = number
            except (KeyError, TypeError, ValueError, RecursionError):
                number = self._odd(entry)
            last = number
            found.append(number)
        if -1 in found:
            kept = [(entry, number) for entry, number in zip(entries, found, strict=True) if number >= 0]
            self._entries = [entry for entry, _ in kept]
            found = [number for _, number in kept]
        self.templates = found
        counted = "seq_id" if self._entries and "seq_id" in self._entries[0] else "collective_seq_id"
        self.columns = [self.column(key) for key in (counted, "op_id", "time_created_ns")]

    def _odd(self, entry: dict[Any, Any]) -> int:
        """Template of an entry that is not like the first one; -1 if it makes no sense."""
        try:
            group = self.names.setdefault(self.reader.group_of(entry), len(self.names))
            return self._with_template(entry, self._read_template(entry, group), group)
        except (KeyError, TypeError, ValueError, RecursionError):
            return -1

    def _call(self, entry: dict[Any, Any]) -> Call | PointToPoint:
        reader = self.reader
        reader.read(entry)
        call: Call | PointToPoint = reader.calls.pop() if reader.calls else reader.point_to_points.pop()
        return replace(call, group="", thread_id=self._thread(call.thread_id))

    def _thread(self, thread_id: int) -> int:
        """Threads are numbered as they appear: their ids differ from rank to rank. 0 is not known."""
        return self._threads.setdefault(thread_id, len(self._threads))

    def _template(self, entry: dict[Any, Any], shape: tuple[Any, ...]) -> int:
        """Number of the template of an entry with this shape, which is new in this dump.

        Dumps of one behaviour bring the same ones in the same order: so it is first compared with the one that came at
        this point in the dump before. Only what no dump had is read.
        """
        own, shared = shape[self._common :], shape[: self._common]
        place = self._places.get(own)
        if place is None:
            group = self.names.setdefault(self.reader.group_of(entry), len(self.names))
            place = self._places[own] = (group, self._thread(self.reader.thread_of(entry)))
        tables = self._tables
        sample = tables.samples.get((self._last, place))
        if sample is not None and sample[0] == shared:
            number = sample[1]
        else:
            key = (place, *map(self._comparable, shared))
            number = tables.known.get(key, -1)
            if number < 0:
                number = tables.known[key] = self._read_template(entry, place[0])
            tables.samples[self._last, place] = (shared, number)
        self._last = number
        return self._with_template(entry, number, place[0])

    def _read_template(self, entry: dict[Any, Any], group: int) -> int:
        call = self._call(entry)
        if isinstance(call, Call):
            call = replace(call, sequence=0, op_id=0, created_ns=0)
        else:
            call = replace(call, op_id=0, created_ns=0)
        return self._tables.add_template(group, call)

    def _with_template(self, entry: dict[Any, Any], number: int, group: int) -> int:
        is_call, completed, with_frames = self._tables.facts[number]
        self.completed = self.completed or completed
        self.with_frames = self.with_frames or with_frames
        self._pending[number] = not completed
        self._is_call[number] = is_call
        if not is_call and (match := _OWN_PLACE.search(str(entry.get("profiling_name")))):
            self.places.add((group, int(match[1])))
        return number

    def _comparable(self, value: Any) -> Any:
        """A part of a shape, comparable with those of other dumps: frames by number, other lists by their text."""
        if type(value) is not list:
            return value
        return tuple(map(self._frame, value)) if value and type(value[0]) is dict else repr(value)

    def _frame(self, frame: dict[Any, Any]) -> int:
        number = self._frames.get(id(frame))
        if number is None:
            frames = self._tables.frames
            number = frames.setdefault((frame["filename"], frame["line"], frame["name"]), len(frames))
            self._frames[id(frame)] = number
        return number

    def column(self, key: str) -> list[int]:
        """The numbers under ``key``; 0 for what is none."""
        try:
            values = list(map(itemgetter(key), self._entries))
        except KeyError:
            values = [entry.get(key) for entry in self._entries]
        if set(map(type, values)) <= _INT and (not values or -_LARGEST < min(values) <= max(values) < _LARGEST):
            return values
        return [value if type(value) is int and -_LARGEST < value < _LARGEST else 0 for value in values]

    def own(self) -> list[Any]:
        """The calls whose times are told although others share their row: those that a group waits for, and the last.

        Each with the number of collectives, or of point-to-point calls, that follow it.
        """
        waiting = {number for number, pending in self._pending.items() if pending}
        places: dict[Any, int] = {}
        if waiting:
            groups = {number: (self._tables.rows[number][0], self._is_call[number]) for number in waiting}
            different = len(set(groups.values()))
            for place, number in enumerate(self.templates):
                if number in waiting and groups[number] not in places:
                    places[groups[number]] = place
                    if len(places) == different:
                        break
        chosen = sorted({*places.values(), len(self.templates) - 1}) if self.templates else []
        only_one_kind = len(set(self._is_call.values())) == 1
        found = []
        for place in chosen:
            number, later = self.templates[place], self.templates[place + 1 :]
            kind = self._is_call[number]
            after = len(later) if only_one_kind else sum(self._is_call[other] == kind for other in later)
            found.append([after, number, *(column[place] for column in self.columns)])
        return found

    def body(self) -> dict[str, Any]:
        """The number of these rows in the worker's table, and the rows themselves where they are new there."""
        hashed = hashlib.blake2b(array("q", self.templates).tobytes(), digest_size=16)
        for column in (*self.columns[:-1], [when_begun(self.columns[-1])]):
            hashed.update(array("q", column).tobytes())
        key, known = hashed.digest(), self._tables.bodies
        if key in known:
            return {"body": known[key]}
        known[key] = len(known)
        return {"body": known[key], "rows": [self.templates, *self.columns]}


def when_begun(created: list[int]) -> int:
    """Minutes, about, of the first of these times: the ranks of another run have times of their own."""
    return created[0] >> 36 if created else 0


_LARGEST = 1 << 63
_INT = {int}


def _getter(first: dict[Any, Any]) -> tuple[Callable[[dict[Any, Any]], Any], int]:
    """What takes the values out of an entry that belong to its template, and how many of them, from the first, mean
    the same in every dump."""
    common = [key for key in first if key not in _OF_EACH and key not in _OF_A_RANK]
    keys = [*common, *(key for key in _OF_A_RANK if key in first)]
    return (itemgetter(*keys) if len(keys) > 1 else lambda entry: tuple(entry[key] for key in keys)), len(common)


def _key(shape: tuple[Any, ...]) -> tuple[Any, ...]:
    """``shape`` as a key. A frame is one object however often it occurs in a dump, lists of frames are many."""
    return tuple(
        [
            (tuple(map(id, value)) if value and type(value[0]) is dict else repr(value))
            if type(value) is list
            else value
            for value in shape
        ]
    )
