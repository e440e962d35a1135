"""One dump, made as small as what is new in it. Runs in a worker, under its limits.

Ranks of one behavior have dumps that differ in times, threads and the names of groups alone. So each dump is first
compared with those before it, and only one that is unlike them all is parsed: its calls are a new *body*. Of the others
only the names and times are passed on.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from operator import attrgetter, itemgetter
from typing import Any

from hangdoc.capture.read.flight_recorder import Reader, Recorded, StackTable, has_known_schema, parse
from hangdoc.capture.read.recorder_groups import Members, counters, groups_of, status_of
from hangdoc.model.journal import Call, PointToPoint

MOST_ENTRIES = 50_000
"""Of a dump, the newest: 25 times what a recorder keeps by default (TORCH_FR_BUFFER_SIZE, torch 2.13)."""
_OF_EACH = {
    "collective_seq_id",
    "seq_id",
    "p2p_seq_id",
    "op_id",
    "record_id",
    "time_created_ns",
    "time_discovered_started_ns",
    "time_discovered_completed_ns",
    "duration_ms",
}
"""Keys whose values differ from call to call; whatever else an entry has is its shape."""
_OF_A_RANK = ("process_group", "pg_id", "thread_id")
"""Keys whose values are a rank's own: groups and threads are numbered as they appear instead."""
_VERSION = re.compile(r"\d{1,4}(?:\.\d{1,4}){1,3}[\w.+-]{0,20}", re.ASCII)
_OWN_PLACE = re.compile(r"(?:send|recv) (\d+)(?:->|<-)(?:\d+|\?)$")


class NoDumpError(ValueError):
    """A file of another kind."""


class Rows:
    """How calls, or messages, are passed on: each as the number of a template, with columns of numbers beside it.

    A template is a call without them: calls of one line are alike.
    """

    def __init__(self, kind: type[Call] | type[PointToPoint]) -> None:
        """``kind``: what the rows are of."""
        names = kind.__match_args__
        self.kind = kind
        self.numbers = tuple(name for name in names if name in ("sequence", "op_id", "batch") or name.endswith("_ns"))
        """The fields that are columns."""
        self.others = tuple(name for name in names if name not in self.numbers)
        self.number_of, self.template_of = attrgetter(*self.numbers), attrgetter(*self.others)

    def make(self, template: Sequence[Any], numbers: tuple[int, ...]) -> Any:
        """The call of that template with these numbers."""
        values: dict[str, Any] = dict(zip(self.others, template, strict=True))
        values.update(zip(self.numbers, numbers, strict=True))
        return self.kind(**values)


CALLS, MESSAGES = Rows(Call), Rows(PointToPoint)


@dataclass(slots=True)
class Tables:
    """What one worker has seen so far: a later answer refers to it by number."""

    stacks: StackTable = field(default_factory=StackTable.new)
    templates: list[tuple[Any, ...]] = field(default_factory=list)
    members: list[tuple[int, ...]] = field(default_factory=list)
    bodies: dict[bytes, tuple[int, list[int]]] = field(default_factory=dict)
    """Digest → number of the body, and the entries whose times are passed on for each rank."""
    own: list[list[int]] = field(default_factory=list)
    """The latter, by the number of the body."""
    lists: Members = field(default_factory=Members)
    shapes: dict[Any, int] = field(default_factory=dict)
    """What an entry shows, group and thread by number → number of the shape."""
    samples: dict[Any, tuple[Any, int]] = field(default_factory=dict)
    """(the shape before it, group and thread) → what the latest such entry showed, and its shape."""
    frames: dict[Any, int] = field(default_factory=dict)
    odd: int = 0
    """Entries that are like no other."""
    _templates: dict[tuple[Any, ...], int] = field(default_factory=dict)
    _members: dict[int, int] = field(default_factory=dict)
    _sent: tuple[int, int, int] = (0, 0, 0)

    def add_members(self, members: tuple[int, ...]) -> int:
        """Number of the list, which ``lists`` knows: equal ones are one object."""
        number = self._members.setdefault(id(members), len(self.members))
        if number == len(self.members):
            self.members.append(members)
        return number

    def add_template(self, template: tuple[Any, ...]) -> int:
        """Its number. The first item: is it of a collective?"""
        number = self._templates.setdefault(template, len(self.templates))
        if number == len(self.templates):
            self.templates.append(template)
        return number

    def news(self) -> dict[str, Any]:
        """The stacks, templates and lists of members that were added since this was asked last."""
        stacks, templates, members = self._sent
        self._sent = (len(self.stacks.stacks), len(self.templates), len(self.members))
        return {
            "templates": self.templates[templates:],
            "stacks": [[(f.file, f.line, f.function) for f in stack] for stack in self.stacks.stacks[stacks:]],
            "members": self.members[members:],
        }


def digest(dump: dict[Any, Any], tables: Tables) -> dict[str, Any]:
    """What the parent has to know of ``dump``, as JSON has it. Raises ``ValueError`` for what is no dump."""
    version, entries = dump.get("version"), dump.get("entries", [])
    if not isinstance(version, str) or not isinstance(entries, list):
        raise NoDumpError("it has no version and no list of entries")
    if not has_known_schema(version):
        raise ValueError(f"its schema is {version[:40]!r}; this hangdoc knows 2.x")
    entries = entries[-MOST_ENTRIES:]
    if not set(map(type, entries)) <= {dict}:
        entries = [entry for entry in entries if isinstance(entry, dict)]
    look = _Look(entries, tables)
    groups = look.reader.with_its_groups(groups_of(dump.get("pg_config"), tables.lists))
    status, names = dump.get("pg_status"), look.reader.names
    created, started, completed, records = map(
        look.column, ("time_created_ns", "time_discovered_started_ns", "time_discovered_completed_ns", "record_id")
    )
    retired = (entry.get("retired") is True for entry in entries)
    number, own, body = look.body(created, started, completed, records)
    return {
        "groups": [[g.name, g.description, tables.add_members(g.members)] for g in groups],
        "names": list(look.names),
        "counters": counters(status, names),
        "status": status_of(status, names, groups),
        "forgotten": min(max(0, records[0]), 1 << 62) if records else 0,
        "first": min(filter(None, created), default=0),
        "latest": max((max(column, default=0) for column in (created, started, completed)), default=0),
        "moved": max(max(created, default=0), max(compress(completed, retired), default=0)),
        "body": number,
        "own": [created[place] for place in own],
        "library": _library(dump),
        **body,
    }


def _library(dump: dict[Any, Any]) -> str:
    """The version of the library that communicates, as the recorder says it: '2.21.5'; '' where it does not."""
    said = next((dump[key] for key in ("comm_lib_version", "nccl_version") if dump.get(key)), "")
    return said if isinstance(said, str) and _VERSION.fullmatch(said) else ""


class _Look:
    """The entries of a dump, as numbers of shapes that mean the same in all dumps."""

    def __init__(self, entries: list[dict[Any, Any]], tables: Tables) -> None:
        self.reader = Reader(tables.stacks)
        self.names: dict[str, int] = {}
        """Group → its number, as they appear: ranks call groups of other names alike."""
        self._entries = entries
        self._tables = tables
        self._common = 0
        """How many parts of what an entry shows, from the first, mean the same in every dump."""
        self._last = -1
        self._places: dict[Any, tuple[int, int]] = {}
        """What is a rank's own in an entry → numbers of the group and of the thread."""
        self._threads: dict[int, int] = {0: 0}
        self._frames: dict[int, int] = {}
        self._shapes = self._read()

    def _read(self) -> list[int]:
        """Each entry's shape.

        Most entries are what followed the one before them the last time: so they are compared with that, and only where
        they differ is the table asked, which takes longer.
        """
        found: list[int] = []
        shown: dict[int, Any] = {}
        number_of: dict[Any, int] = {}
        follows: dict[int, int] = {}
        getters: dict[int, tuple[Callable[[dict[Any, Any]], Any], int]] = {}
        get, length, last = itemgetter("frames"), -1, -1
        for entry in self._entries:
            try:
                if len(entry) != length:  # where some have a duration, say
                    length = len(entry)
                    if length not in getters:
                        getters[length] = _getter(entry)
                    get, self._common = getters[length]  # type: ignore[assignment]
                shows = get(entry)
                number = follows.get(last, -1)
                if number < 0 or shown[number] != shows:
                    key = _key(shows) if number >= 0 else None
                    number = number_of.get(key, -1) if key else -1
                    if number < 0:
                        number = self._shape(entry, shows)
                        shown.setdefault(number, shows)
                        if key:
                            number_of[key] = number
                    follows[last] = number
            except (KeyError, TypeError, ValueError, RecursionError):
                length = -1
                number = self._odd(entry)
            last = number
            found.append(number)
        return found

    def _odd(self, entry: dict[Any, Any]) -> int:
        """Number of the shape of an entry that is no key: it is like no other."""
        with contextlib.suppress(KeyError, TypeError, ValueError, RecursionError):
            self.names.setdefault(self.reader.group_of(entry), len(self.names))
            self._threads.setdefault(self.reader.thread_of(entry), len(self._threads))
        self._tables.odd += 1
        return -self._tables.odd

    def _shape(self, entry: dict[Any, Any], shows: tuple[Any, ...]) -> int:
        """Number of the shape of an entry that shows what is new in this dump.

        Dumps of one behavior bring the same in the same order: so it is first compared with what came at this point in
        the dump before.
        """
        own, shared = shows[self._common :], shows[: self._common]
        place = self._places.get(own)
        if place is None:
            group = self.names.setdefault(self.reader.group_of(entry), len(self.names))
            thread = self._threads.setdefault(self.reader.thread_of(entry), len(self._threads))
            place = self._places[own] = (group, thread)
        tables = self._tables
        sample = tables.samples.get((self._last, place))
        if sample is not None and sample[0] == shared:
            number = sample[1]
        else:
            number = tables.shapes.setdefault((place, *map(self._comparable, shared)), len(tables.shapes))
            tables.samples[self._last, place] = (shared, number)
        self._last = number
        return number

    def _comparable(self, value: Any) -> Any:
        """A part of what is shown, comparable with those of other dumps: frames by number, other lists as text."""
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

    def column(self, key: str) -> array[int]:
        """The numbers under ``key``; 0 for what is none."""
        try:
            values: list[Any] = list(map(itemgetter(key), self._entries))
        except KeyError:
            values = [entry.get(key) for entry in self._entries]
        try:
            return array("q", values if None not in values else [value or 0 for value in values])
        except (TypeError, OverflowError):
            return array("q", [v if type(v) is int and -_LARGEST < v < _LARGEST else 0 for v in values])

    def body(
        self, created: array[int], started: array[int], completed: array[int], records: array[int]
    ) -> tuple[int, list[int], dict[str, Any]]:
        """(number of the body, the entries whose times are the rank's own, the body itself where it is new)."""
        key, bodies = self._fingerprint(created, started, completed, records), self._tables.bodies
        if key in bodies:
            return (*bodies[key], {})
        recorded = parse({"version": "2.0", "entries": self._entries}, self._tables.stacks)
        assert isinstance(recorded, Recorded)
        place_of = {time: place for place, time in reversed(list(enumerate(created)))}
        both: tuple[Sequence[Call | PointToPoint], ...] = (recorded.calls, recorded.point_to_points)
        own = [
            (calls is both[0], index, place_of[calls[index].created_ns])
            for calls in both
            for index in _timed_for_each_rank(calls)
            if calls[index].created_ns in place_of
        ]
        body = {
            "calls": self._rows(CALLS, recorded.calls),
            "messages": self._rows(MESSAGES, recorded.point_to_points),
            "order": self._order(recorded),
            "gave_up": recorded.gave_up,
            "unsure_numbers": [self.names[name] for name in recorded.unsure_numbers],
            "places": sorted(self._own_places()),
            "times": [(is_call, index) for is_call, index, _ in own],
        }
        bodies[key] = len(bodies), [place for _, _, place in own]
        self._tables.own.append(bodies[key][1])
        return (*bodies[key], body)

    def _fingerprint(
        self, created: array[int], started: array[int], completed: array[int], records: array[int]
    ) -> bytes:
        """What dumps of one behavior have in common: shapes and numbers, and of the times which are there."""
        hashed = hashlib.blake2b(array("q", self._shapes), digest_size=16)
        for name in ("collective_seq_id", "seq_id", "p2p_seq_id", "op_id"):
            if self._entries and name in self._entries[0]:
                hashed.update(self.column(name))
        for times in (started, completed):
            hashed.update(bytes([time > 0 for time in times]))
        hashed.update(bytes([entry.get("duration_ms") is not None for entry in self._entries]))
        gaps = records and records[-1] - records[0] != len(records) - 1
        forgotten = bool(records and records[0])
        hashed.update(array("q", [when_begun(created), forgotten, *(records if gaps else ())]))
        return hashed.digest()

    def _rows(self, rows: Rows, calls: Iterable[Call | PointToPoint]) -> dict[str, Any]:
        """The calls as numbers of templates, with the columns."""
        templates, numbers = [], []
        for call in calls:
            group, thread = self.names[call.group], self._threads.get(call.thread_id, 0)
            alike = rows.template_of(replace(call, group="", thread_id=thread))
            templates.append(self._tables.add_template((rows.kind is Call, group, *alike)))
            numbers.append(rows.number_of(call))
        return {"templates": templates, "numbers": numbers}

    def _order(self, recorded: Recorded) -> list[int]:
        """For each message, how many calls were issued before it."""
        times = sorted(call.created_ns for call in recorded.calls)
        return [bisect_right(times, message.created_ns) for message in recorded.point_to_points]

    def _own_places(self) -> set[tuple[int, int]]:
        """(number of a group, this rank's place in it), as point-to-point calls give it."""
        found = set()
        for entry in self._entries:
            name, group = entry.get("profiling_name"), entry.get("process_group")
            if isinstance(name, str) and (match := _OWN_PLACE.search(name)) and isinstance(group, (tuple, list)):
                found.add((self.names.get(group[0] if group else "", -1), int(match[1])))
        return found


def _timed_for_each_rank(calls: Sequence[Call | PointToPoint]) -> list[int]:
    """The calls whose times are passed on for each rank: those that a group waits for, and the last."""
    first: dict[str, int] = {}
    for index, call in enumerate(calls):
        if not call.completed:
            first.setdefault(call.group, index)
    return sorted({*first.values(), len(calls) - 1}) if calls else []


def when_begun(created: Sequence[int]) -> int:
    """Minutes, about, of the first of these times: the ranks of another run have times of their own."""
    return created[0] >> 36 if created else 0


_LARGEST = 1 << 63


def _getter(first: dict[Any, Any]) -> tuple[Callable[[dict[Any, Any]], Any], int]:
    """What takes the values out of an entry that belong to its shape, and how many of them, from the first, mean the
    same in every dump."""
    common = [key for key in first if key not in _OF_EACH and key not in _OF_A_RANK]
    keys = [*common, *(key for key in _OF_A_RANK if key in first)]
    return (itemgetter(*keys) if len(keys) > 1 else lambda entry: tuple(entry[key] for key in keys)), len(common)


def _key(shows: tuple[Any, ...]) -> tuple[Any, ...]:
    """What an entry shows as a key. A frame is one object however often it occurs in a dump, lists of them are many."""
    return tuple(
        [
            (tuple(map(id, value)) if value and type(value[0]) is dict else repr(value))
            if type(value) is list
            else value
            for value in shows
        ]
    )
