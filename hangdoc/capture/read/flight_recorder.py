"""c10d's flight recorder: its pickles and dump files, read without trusting them.

Facts of torch 2.6-2.15 (schema "2.4" to "2.10"): a dump is a pickled dict of builtins; what it says of a call's
progress depends on the backend (``recorder_entries``); gloo's ``pg_config`` has one entry without a name; each distinct
frame is one dict, so frames are interned by identity.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from hangdoc.capture.read.coalesced import one_for_each_number, with_the_state_of_their_batch
from hangdoc.capture.read.recorder_entries import POINT_TO_POINT, Progress, operation, progress_of
from hangdoc.capture.read.recorder_groups import Members, counters, groups_of, status_of
from hangdoc.capture.read.recorder_values import LONGEST_TEXT, sizes, text, texts, whole
from hangdoc.model.frames import own_frames
from hangdoc.model.journal import Call, Calls, Journal, PointToPoint, ProcessGroup
from hangdoc.model.operations import operation as known_operation
from hangdoc.model.process import Frame, Stack
from hangdoc.model.snapshot import Unavailable

MOST_BYTES = 64 << 20
"""Of a dump; chosen by hand: 32 KiB for each of the 2,000 calls that a recorder keeps by default (torch 2.13)."""
_MOST_CALLS = 100_000
"""Of a recorder, the newest. It keeps 2,000 by default (torch 2.13)."""
_MOST_FRAMES = 4096
"""Of a stack; chosen by hand: Python itself stops a recursion at 1,000 by default."""
_LONGEST_MS = 1e11
"""Of a kernel: three years."""
_SCHEMA = re.compile(r"2\.\d+$")

_T = TypeVar("_T")


def _unavailable(why: str) -> Unavailable:
    return Unavailable(
        "journal",
        f"the flight recorder's dump cannot be read: {why}",
        "give the file as torch wrote it, whole (TORCH_FR_DUMP_TEMP_FILE names where)",
    )


@dataclass(slots=True)
class StackTable:
    """Every different stack once."""

    stacks: list[Stack]
    _index: dict[Stack, int]

    @classmethod
    def new(cls) -> StackTable:
        """An empty table."""
        return cls([], {})

    def add(self, stack: Stack) -> int:
        """Index of ``stack``, without what started the process; -1 for an empty one."""
        stack = own_frames(stack)
        if not stack:
            return -1
        found = self._index.get(stack)
        if found is None:
            found = self._index[stack] = len(self.stacks)
            self.stacks.append(stack)
        return found


@dataclass(frozen=True, slots=True)
class Recorded:
    """What one dump says. Each field is the one of that name in ``Journal``."""

    calls: Calls
    point_to_points: tuple[PointToPoint, ...]
    groups: tuple[ProcessGroup, ...]
    counters: tuple[tuple[str, int, int], ...]
    forgotten: int = 0
    gave_up: tuple[int, ...] = ()
    status: tuple[tuple[str, int, int, int], ...] = ()
    latest_ns: int = 0
    moved_ns: int = 0
    unsure_numbers: tuple[str, ...] = ()
    active_only: bool = False
    unsure_calls: tuple[int, ...] = ()
    """Places in ``calls`` of those that may or may not have ended; they count as completed."""
    unsure_messages: frozenset[str] = frozenset()
    """Groups with messages of which that holds."""

    def as_journal(self, stacks: tuple[Stack, ...], written: float) -> Journal:
        """The journal of a dump whose file is of the Unix time ``written``. ``stacks`` are those of its table."""
        return Journal(
            source="dump",
            groups=self.groups,
            calls=self.calls,
            point_to_points=self.point_to_points,
            forgotten=self.forgotten,
            stacks=stacks,
            counters=self.counters,
            written_ns=int(written * 1e9),
            latest_ns=self.latest_ns,
            moved_ns=self.moved_ns,
            gave_up=self.gave_up,
            unsure_numbers=self.unsure_numbers,
            status=self.status,
            active_only=self.active_only,
        )


def is_active_only(
    forgotten: int, counters: tuple[tuple[str, int, int], ...], *, shows_calls: bool, shows_completed: bool
) -> bool:
    """True if a dump leaves out what has completed: it shows no completed call, though older calls than its first were.

    Of a dump without any call, the counters say whether there were some. Example: calls from record 40 on, none of
    them completed → True; calls from record 0 on, none of them completed → False.
    """
    older = forgotten > 0 if shows_calls else any(enqueued > 0 for _, enqueued, _ in counters)
    return older and not shows_completed


def parse(
    dump: dict[Any, Any],
    table: StackTable,
    known_groups: tuple[ProcessGroup, ...] = (),
) -> Recorded | Unavailable:
    """Dump → calls in the order they were issued. Entries that make no sense are left out.

    ``known_groups`` translate the peers of point-to-point calls; without them the dump's own groups do.
    """
    version = dump.get("version")
    if not isinstance(version, str) or not has_known_schema(version):
        return _unavailable(f"its schema is {str(version)[:40]!r}; this hangdoc knows 2.x")
    entries = dump.get("entries", [])
    if not isinstance(entries, list):
        return _unavailable("it has no list of entries")
    kept = entries[-_MOST_CALLS:]
    reader = Reader(table)
    reader.read_all(kept)
    groups = reader.with_its_groups(groups_of(dump.get("pg_config"), Members()))
    members = {group.name: group.members for group in known_groups or groups}
    calls = tuple(one_for_each_number(reader.calls, reader.closed_calls))
    messages = with_the_state_of_their_batch(reader.point_to_points, reader.closed_batches)
    status, forgotten = dump.get("pg_status"), _forgotten(kept)
    counted = counters(status, reader.names)
    return Recorded(
        calls=calls,
        point_to_points=tuple(to_global_rank(call, members.get(call.group, ())) for call in messages),
        groups=groups,
        counters=counted,
        forgotten=forgotten,
        gave_up=_places(calls, reader.gave_up),
        status=status_of(status, reader.names, groups),
        latest_ns=reader.latest_ns,
        moved_ns=reader.moved_ns,
        unsure_numbers=reader.taken_from if forgotten else (),
        unsure_calls=_places(calls, reader.unsure),
        unsure_messages=frozenset(reader.unsure_messages),
        active_only=is_active_only(
            forgotten,
            counted,
            shows_calls=bool(calls or messages),
            shows_completed=any(c.completed for c in calls) or any(m.completed for m in messages),
        ),
    )


def _places(calls: Sequence[Call], wanted: Set[tuple[str, int]]) -> tuple[int, ...]:
    """The places of the calls with these (group, number)."""
    return tuple(place for place, call in enumerate(calls) if (call.group, call.sequence) in wanted)


def _leaves_a_gap(entry: dict[Any, Any], following: Any) -> bool:
    """True if entries are missing between the two: the dump has only calls that had not completed
    (TORCH_INCLUDE_ONLY_ACTIVE)."""
    here, there = entry.get("record_id"), following.get("record_id") if isinstance(following, dict) else None
    return type(here) is int and type(there) is int and there > here + 1


def has_known_schema(version: str) -> bool:
    """True for the versions of dumps that this hangdoc knows."""
    return _SCHEMA.match(version) is not None


def _forgotten(entries: list[Any]) -> int:
    """The number of the oldest entry that is kept: the recorder counts them from 0 (torch 2.6-2.13)."""
    first = entries[0].get("record_id") if entries and isinstance(entries[0], dict) else 0
    return first if type(first) is int and 0 < first < 1 << 63 else 0


class Reader:
    """Entries of one dump, made calls one by one. The dump has to outlive it."""

    def __init__(self, table: StackTable) -> None:
        """``table`` takes the stacks."""
        self.calls: list[Call] = []
        self.point_to_points: list[PointToPoint] = []
        self.names: dict[str, str] = {}
        self.groups: dict[str, ProcessGroup] = {}
        self.gave_up: set[tuple[str, int]] = set()
        self.unsure: set[tuple[str, int]] = set()
        self.unsure_messages: set[str] = set()
        self.latest_ns = 0
        self.moved_ns = 0
        self.closed_batches: set[int] = set()
        self.closed_calls: set[tuple[str, int]] = set()
        self._batches: dict[tuple[str, int, int], int] = {}
        self._taken: dict[str, int] = {}
        self._last: dict[str, int] = {}
        self._from_start: bool | None = None
        self._table = table
        self._frames: dict[int, Frame] = {}
        self._stacks: dict[int | tuple[int, ...], int] = {}
        self._read: dict[Callable[[Any], Any], dict[int, Any]] = {}

    @property
    def taken_from(self) -> tuple[str, ...]:
        """The groups of whose collectives batches took numbers: their own counter does not move."""
        numbers: dict[tuple[str, int], set[int]] = {}
        for name, collective, message in self._batches:
            numbers.setdefault((name, message), set()).add(collective)
        return tuple(
            {name: None for (name, _), found in numbers.items() if len(found) > 1} | dict.fromkeys(self._taken)
        )

    def with_its_groups(self, groups: tuple[ProcessGroup, ...]) -> tuple[ProcessGroup, ...]:
        """``groups``, and those that only the entries name."""
        named = {group.name for group in groups}
        return groups + tuple(group for name, group in self.groups.items() if name not in named)

    def read_all(self, entries: Sequence[Any]) -> None:
        """Read the entries, in their order; those that make no sense are left out."""
        for entry, following in itertools.zip_longest(entries, entries[1:]):
            if isinstance(entry, dict):
                with contextlib.suppress(KeyError, TypeError, ValueError):
                    self.read(entry, closed=_leaves_a_gap(entry, following))

    def read(self, entry: dict[Any, Any], *, closed: bool = False) -> None:
        """Read one entry. ``closed``: the entry after it had completed and was left out of the dump."""
        if self._from_start is None:
            self._from_start = _forgotten([entry]) == 0
        name = self.group_of(entry)
        op, peer = self._operation(entry["profiling_name"])
        number = whole(entry["collective_seq_id"] if "collective_seq_id" in entry else entry["seq_id"])
        numbers = (name, number, whole(entry.get("p2p_seq_id")))
        progress = progress_of(entry)
        common = self._common(entry, progress) | {"group": name, "op": op}
        is_message = entry.get("is_p2p") is True
        ends_batch = op == "coalesced" and numbers in self._batches
        if is_message or op in POINT_TO_POINT or ends_batch:
            if ends_batch and not is_message and number > self._last.get(name, 0 if self._from_start else number):
                # Until torch 2.5 a batch took a number of the collectives, on the ranks that took part in it: its
                # entries have that number. Later ones (2.11, NCCL 2.28) have that of the collective before the batch.
                self._taken[name] = self._taken.get(name, 0) + 1
            if ends_batch:
                self._last[name] = number
            batch = self._batch(numbers, closed=closed)
            if progress.unsure:
                self.unsure_messages.add(name)
            shapes = entry.get("output_sizes" if op == "recv" else "input_sizes")
            self.point_to_points.append(
                PointToPoint(
                    **common,
                    peer=peer,
                    tag=0,
                    batch=batch if common["state"] else 0,
                    sizes=self._once(sizes, shapes),
                )
            )
            return
        self._last[name] = number
        sequence = number - self._taken.get(name, 0)
        if closed:
            self.closed_calls.add((name, sequence))
        if progress.gave_up:
            self.gave_up.add((name, sequence))
        if progress.unsure:
            self.unsure.add((name, sequence))
        self.calls.append(
            Call(
                **common,
                sequence=sequence,
                input_sizes=self._once(sizes, entry.get("input_sizes")),
                input_dtypes=self._once(texts, entry.get("input_dtypes")),
                thread_name=self._text(entry.get("thread_name")),
                output_sizes=self._once(sizes, entry.get("output_sizes")) if known_operation(op).exchange else (),
            )
        )

    def _batch(self, numbers: tuple[str, int, int], *, closed: bool) -> int:
        """The number of the batch whose entries have these: (group, number of collectives, number of messages)."""
        batch = self._batches.setdefault(numbers, len(self._batches) + 1)
        if closed:
            self.closed_batches.add(batch)
        return batch

    def _common(self, entry: dict[Any, Any], progress: Progress) -> dict[str, Any]:
        """The fields that collectives and messages share. The entry's times count for the whole dump's as well."""
        retired = entry.get("retired") is True
        created_ns = whole(entry.get("time_created_ns"))
        started_ns = whole(entry.get("time_discovered_started_ns"))
        completed_ns = whole(entry.get("time_discovered_completed_ns"))
        self.latest_ns = max(self.latest_ns, created_ns, started_ns, completed_ns)
        self.moved_ns = max(self.moved_ns, created_ns, completed_ns if retired else 0)
        return {
            "op_id": 0 if progress.hooked else whole(entry.get("op_id")),
            "stack": self._stack(entry.get("frames")),
            "created_ns": created_ns,
            "started_ns": started_ns,
            "completed_ns": completed_ns,
            "duration_ns": _nanoseconds(entry.get("duration_ms")),
            "completed": progress.completed,
            "state": progress.state,
            "thread_id": self.thread_of(entry),
            "timeout_ms": whole(entry.get("timeout_ms")),
        }

    def group_of(self, entry: dict[Any, Any]) -> str:
        """The name of the entry's group, which is remembered with its number and its description."""
        group = entry["process_group"]
        name = self._text(group[0] if isinstance(group, (tuple, list)) and group else group)
        number = self._text(entry.get("pg_id"))
        # TORCH_DISTRIBUTED_DEBUG=DETAIL hides the names from gloo: do not take all groups for one.
        name = name or f"#{number}"
        self.names[number] = name
        if name not in self.groups and isinstance(group, (tuple, list)) and len(group) == 2 and group[0]:
            self.groups[name] = ProcessGroup(name, (), text(group[1]))  # gloo: who its members are, no dump says
        return name

    @staticmethod
    def thread_of(entry: dict[Any, Any]) -> int:
        """The thread that issued the entry's call; 0 where the dump does not name it (before schema 2.9)."""
        return whole(entry.get("thread_id"))

    def _text(self, value: Any) -> str:
        return value if isinstance(value, str) and len(value) <= LONGEST_TEXT else self._once(text, value)

    def _operation(self, value: Any) -> tuple[str, int]:
        return self._once(_operation, value)

    def _once(self, read: Callable[[Any], _T], value: Any) -> _T:
        """``read(value)``, once for each object: a dump may name one list in a million of its entries."""
        known = self._read.setdefault(read, {})
        if id(value) not in known:
            known[id(value)] = read(value)
        found: _T = known[id(value)]
        return found

    def _stack(self, frames: Any) -> int:
        if not isinstance(frames, list):
            return -1
        if id(frames) not in self._stacks:
            key = tuple(id(frame) for frame in frames[:_MOST_FRAMES])
            if key not in self._stacks:
                self._stacks[key] = self._table.add(tuple(self._frame(frame) for frame in frames[:_MOST_FRAMES]))
            self._stacks[id(frames)] = self._stacks[key]
        return self._stacks[id(frames)]

    def _frame(self, frame: Any) -> Frame:
        known = self._frames.get(id(frame))
        if known is None:
            known = Frame(text(frame["filename"]), whole(frame["line"]), text(frame["name"]))
            self._frames[id(frame)] = known
        return known


def _nanoseconds(milliseconds: Any) -> int:
    """0.25 → 250,000; 0 for what is no duration."""
    known = type(milliseconds) in (int, float) and 0 < milliseconds < _LONGEST_MS
    return round(milliseconds * 1e6) if known else 0


def to_global_rank(call: PointToPoint, members: tuple[int, ...]) -> PointToPoint:
    """``call`` with its peer as a global rank, where the group's members are known."""
    known = 0 <= call.peer < len(members)
    return replace(call, peer=members[call.peer]) if known else call


def _operation(value: Any) -> tuple[str, int]:
    return operation(text(value))
