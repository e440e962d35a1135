"""c10d's flight recorder: its pickles and dump files, read without trusting them.

Facts of torch 2.6-2.13 (schema "2.4" to "2.10"): a dump is a pickled dict of builtins; gloo never changes
``state`` and marks the end of a call only by ``retired``; gloo's ``pg_config`` has one entry
without a name; each distinct frame is one dict, so frames are interned by identity.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from hangdoc.capture.read.coalesced import one_for_each_number, with_the_state_of_their_batch
from hangdoc.model.frames import own_frames
from hangdoc.model.journal import Call, PointToPoint, ProcessGroup
from hangdoc.model.process import Frame, Stack
from hangdoc.model.snapshot import Unavailable

MOST_BYTES = 64 << 20
_MOST_CALLS = 100_000
"""Of a recorder, the newest. It keeps 2,000 by default (torch 2.13)."""
_MOST_GROUPS = 16_384
MOST_RANKS = 1 << 17
"""Of a job: more than any job has, and less than a date such as 20251120 at the end of a file's name."""
_MOST_FRAMES = 4096
_MOST_DIMENSIONS = 64
_MOST_MEMBERS = 1 << 20
"""Of all groups that the dumps of a folder name, together."""
_LONGEST_TEXT = 4096
_SCHEMA = re.compile(r"2\.\d+$")

# The names under which Python callers know the operations. Left: what backends record (torch 2.6-2.13).
_OPERATIONS = {
    "allreduce": "all_reduce",
    "allreduce_coalesced": "all_reduce",
    "all_reduce_coalesced": "all_reduce",
    "all_reduce_barrier": "barrier",
    "allgather": "all_gather",
    "_all_gather_base": "all_gather_into_tensor",
    "_allgather_base": "all_gather_into_tensor",
    "all_gather_single": "all_gather_into_tensor",
    "all_gather_into_tensor_coalesced": "all_gather_into_tensor",
    "allgather_into_tensor_coalesced": "all_gather_into_tensor",
    "all_gather_coalesced": "all_gather",
    "allgather_coalesced": "all_gather",
    "_broadcast_oop": "broadcast",
    "broadcast_coalesced": "broadcast",
    "_reduce_oop": "reduce",
    "_reduce_scatter_base": "reduce_scatter_tensor",
    "reduce_scatter_single": "reduce_scatter_tensor",
    "reduce_scatter_tensor_coalesced": "reduce_scatter_tensor",
    "alltoall": "all_to_all",
    "alltoall_base": "all_to_all_single",
    "all_to_all_base": "all_to_all_single",
}
_POINT_TO_POINT = {"send", "recv", "recv_anysource"}
_RUN_AHEAD = {"nccl", "nccl2", "ncclx", "rccl", "rcclx", "mccl", "hccl", "xccl"}
"""Backends whose calls a device executes: the CPU has issued more of them than the device has come to."""
_STATES = {"scheduled", "started", "completed"}

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
    """What one dump says. ``counters``: per group name the last enqueued and last completed number; ``forgotten``: how
    many older entries had left the recorder's ring."""

    calls: tuple[Call, ...]
    point_to_points: tuple[PointToPoint, ...]
    groups: tuple[ProcessGroup, ...]
    counters: tuple[tuple[str, int, int], ...]
    forgotten: int = 0
    gave_up: tuple[int, ...] = ()
    """As in ``Journal``, and so is ``status``."""
    status: tuple[tuple[str, int, int, int], ...] = ()
    latest_ns: int = 0
    moved_ns: int = 0
    unsure_numbers: tuple[str, ...] = ()


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
    reader = Reader(table)
    kept = entries[-_MOST_CALLS:]
    for entry, following in itertools.zip_longest(kept, kept[1:]):
        if isinstance(entry, dict):
            with contextlib.suppress(KeyError, TypeError, ValueError):
                reader.read(entry, closed=_leaves_a_gap(entry, following))
    groups = groups_of(dump.get("pg_config"), Members())
    named = {group.name for group in groups}
    groups += tuple(group for name, group in reader.groups.items() if name not in named)
    members = {group.name: group.members for group in known_groups or groups}
    calls = tuple(one_for_each_number(reader.calls, reader.closed_calls))
    messages = with_the_state_of_their_batch(reader.point_to_points, reader.closed_batches)
    return Recorded(
        calls,
        tuple(to_global_rank(call, members.get(call.group, ())) for call in messages),
        groups,
        counters(dump.get("pg_status"), reader.names),
        _forgotten(entries[-_MOST_CALLS:]),
        tuple(place for place, call in enumerate(calls) if (call.group, call.sequence) in reader.gave_up),
        status_of(dump.get("pg_status"), reader.names, groups),
        reader.latest_ns,
        reader.moved_ns,
        reader.taken_from if _forgotten(kept) else (),
    )


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
        self.latest_ns = 0
        self.moved_ns = 0
        self.closed_batches: set[int] = set()
        self.closed_calls: set[tuple[str, int]] = set()
        self._batches: dict[tuple[str, int, int], int] = {}
        self._taken: dict[str, int] = {}
        self._table = table
        self._frames: dict[int, Frame] = {}
        self._stacks: dict[int | tuple[int, ...], int] = {}
        self._read: dict[Callable[[Any], Any], dict[int, Any]] = {}

    @property
    def taken_from(self) -> tuple[str, ...]:
        """The groups of whose collectives batches took numbers: their own counter stands still."""
        numbers: dict[tuple[str, int], set[int]] = {}
        for name, collective, message in self._batches:
            numbers.setdefault((name, message), set()).add(collective)
        return tuple(
            {name: None for (name, _), found in numbers.items() if len(found) > 1} | dict.fromkeys(self._taken)
        )

    def read(self, entry: dict[Any, Any], *, closed: bool = False) -> None:
        """Read one entry. ``closed``: the one behind it had completed and was left out."""
        name = self.group_of(entry)
        op, peers = self._operation(entry["profiling_name"])
        stack = self._stack(entry.get("frames"))
        state = self._state(entry)
        retired = entry.get("retired") is True
        completed = state == "completed" or (retired and not state)
        thread_id = self.thread_of(entry)
        created_ns = _whole(entry.get("time_created_ns"))
        started_ns = _whole(entry.get("time_discovered_started_ns"))
        completed_ns = _whole(entry.get("time_discovered_completed_ns"))
        self.latest_ns = max(self.latest_ns, created_ns, started_ns, completed_ns)
        self.moved_ns = max(self.moved_ns, created_ns, completed_ns if retired else 0)
        op_id = _whole(entry.get("op_id"))
        number = entry["collective_seq_id"] if "collective_seq_id" in entry else entry["seq_id"]
        numbers = (name, _whole(number), _whole(entry.get("p2p_seq_id")))
        closes = op == "coalesced" and numbers in self._batches
        if entry.get("is_p2p") is True or op in _POINT_TO_POINT or closes:
            batch = self._batches.setdefault(numbers, len(self._batches) + 1)
            if closed:
                self.closed_batches.add(batch)
            if entry.get("is_p2p") is not True and closes:
                # Until torch 2.5 a batch took a number of the collectives, on the ranks that took part in it.
                self._taken[name] = self._taken.get(name, 0) + 1
            self.point_to_points.append(
                PointToPoint(
                    group=name,
                    op_id=op_id,
                    op=op,
                    peer=peers,
                    tag=0,
                    stack=stack,
                    created_ns=created_ns,
                    completed=completed,
                    thread_id=thread_id,
                    state=state,
                    started_ns=started_ns,
                    batch=batch if state else 0,
                    timeout_ms=_whole(entry.get("timeout_ms")),
                    sizes=self._once(_sizes, entry.get("output_sizes" if op == "recv" else "input_sizes")),
                )
            )
            return
        if closed:
            self.closed_calls.add((name, numbers[1] - self._taken.get(name, 0)))
        if retired and not completed:
            self.gave_up.add((name, numbers[1] - self._taken.get(name, 0)))
        self.calls.append(
            Call(
                group=name,
                sequence=numbers[1] - self._taken.get(name, 0),
                op_id=op_id,
                op=op,
                stack=stack,
                input_sizes=self._once(_sizes, entry.get("input_sizes")),
                input_dtypes=self._once(_texts, entry.get("input_dtypes")),
                created_ns=created_ns,
                completed=completed,
                thread_id=thread_id,
                thread_name=self._text(entry.get("thread_name")),
                timeout_ms=_whole(entry.get("timeout_ms")),
                state=state,
                started_ns=started_ns,
            )
        )

    def group_of(self, entry: dict[Any, Any]) -> str:
        """The name of the entry's group, which is remembered with its number and its description."""
        group = entry["process_group"]
        name = self._text(group[0] if isinstance(group, (tuple, list)) and group else group)
        number = self._text(entry.get("pg_id"))
        # TORCH_DISTRIBUTED_DEBUG=DETAIL hides the names from gloo: do not take all groups for one.
        name = name or f"#{number}"
        self.names[number] = name
        if name not in self.groups and isinstance(group, (tuple, list)) and len(group) == 2 and group[0]:
            self.groups[name] = ProcessGroup(name, (), _text(group[1]))  # gloo: who its members are, no dump says
        return name

    @staticmethod
    def thread_of(entry: dict[Any, Any]) -> int:
        """The thread that issued the entry's call; 0 where it is not told (before schema 2.9)."""
        return _whole(entry.get("thread_id"))

    def _state(self, entry: dict[Any, Any]) -> str:
        """The state, of a backend that keeps one: gloo (torch 2.6-2.13) leaves all calls 'scheduled'."""
        state = entry.get("state")
        runs_ahead = _text(entry.get("profiling_name")).partition(":")[0] in _RUN_AHEAD
        return state if runs_ahead and isinstance(state, str) and state in _STATES else ""

    def _text(self, value: Any) -> str:
        return value if isinstance(value, str) and len(value) <= _LONGEST_TEXT else self._once(_text, value)

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
            known = Frame(_text(frame["filename"]), _whole(frame["line"]), _text(frame["name"]))
            self._frames[id(frame)] = known
        return known


def to_global_rank(call: PointToPoint, members: tuple[int, ...]) -> PointToPoint:
    """``call`` with its peer as a global rank, where the group's members are known."""
    known = 0 <= call.peer < len(members)
    return replace(call, peer=members[call.peer]) if known else call


def operation(profiling_name: str) -> tuple[str, int]:
    """'gloo:all_reduce' → ('all_reduce', -1); 'nccl:send 0->1' → ('send', 1); 'nccl:recv 0<-1' → ('recv', 1).

    The peer is the one of the recorder: a rank in the group.
    """
    name = profiling_name.rsplit(":", 1)[-1].strip()
    peer = -1
    if match := re.match(r"(send|recv) \d+(?:->|<-)(\d+)$", name):
        return match[1], int(match[2])
    name = name.rstrip("_") or name
    return _OPERATIONS.get(name, name), peer


def _operation(value: Any) -> tuple[str, int]:
    return operation(_text(value))


def counters(status: Any, names: dict[str, str]) -> tuple[tuple[str, int, int], ...]:
    """``pg_status`` → (group, enqueued, completed). Its keys are numbers, which ``names`` translates."""
    if not isinstance(status, dict):
        return ()
    found = []
    for number, values in itertools.islice(status.items(), _MOST_GROUPS):
        if isinstance(values, dict):
            with contextlib.suppress(ValueError):  # no number at all
                enqueued = _whole(values.get("last_enqueued_collective"))
                completed = _whole(values.get("last_completed_collective"))
                found.append((names.get(_text(number), _text(number)), enqueued, completed))
    return tuple(found)


def _numbered(groups: tuple[ProcessGroup, ...]) -> dict[str, str]:
    """``pg_id`` → group, for a dump whose entries do not tell: the ids count a rank's groups as their names do."""
    names = [group.name for group in groups]
    if not all(name.isdigit() for name in names):
        return {}
    return {str(number): name for number, name in enumerate(sorted(names, key=int))}


def status_of(
    status: Any, names: dict[str, str], groups: tuple[ProcessGroup, ...]
) -> tuple[tuple[str, int, int, int], ...]:
    """``pg_status`` → (group, enqueued, started, completed), -1 for what it does not say."""
    if not isinstance(status, dict):
        return ()
    names = _numbered(groups) | names
    keys = ("last_enqueued_collective", "last_started_collective", "last_completed_collective")
    found = []
    for number, values in itertools.islice(status.items(), _MOST_GROUPS):
        if isinstance(values, dict):
            with contextlib.suppress(ValueError):  # no number at all
                enqueued, started, completed = (_whole(values[k]) if k in values else -1 for k in keys)
                found.append((names.get(_text(number), _text(number)), enqueued, started, completed))
    return tuple(found)


def groups_of(config: Any, members_of: Members) -> tuple[ProcessGroup, ...]:
    """Groups of ``pg_config``; not gloo's, which has one entry without a name."""
    if not isinstance(config, dict):
        return ()
    found = []
    for name, values in itertools.islice(config.items(), _MOST_GROUPS):
        if isinstance(values, dict) and name:
            members = members_of.read(_text(name), values.get("ranks"))
            found.append(ProcessGroup(_text(name), members, _text(values.get("desc") or "")))
    return tuple(found)


class Members:
    """The lists of members in the dumps of a folder. Every dump has the same few, thousands of numbers each: read
    once, and of all groups together no more than so many numbers."""

    def __init__(self) -> None:
        self._known: dict[str | tuple[int, ...], tuple[int, ...]] = {}
        self._groups: set[tuple[str, int]] = set()
        self._left = _MOST_MEMBERS

    def read(self, group: str, ranks: Any) -> tuple[int, ...]:
        """The global ranks; empty where the list makes no sense, or too much of it is there."""
        members = self._known.get(ranks) if isinstance(ranks, str) else None
        if members is None:
            members = _ranks_in(ranks)
            if len(members) > self._left:
                return ()
            members = self._known.setdefault(members, members)
            if isinstance(ranks, str):
                self._known[ranks] = members
        if (group, id(members)) not in self._groups:
            if len(members) > self._left:
                return ()
            self._left -= len(members)
            self._groups.add((group, id(members)))
        return members


def _ranks_in(ranks: Any) -> tuple[int, ...]:
    if isinstance(ranks, str):
        try:
            ranks = json.loads(ranks) if len(ranks) < 16 * MOST_RANKS else ()
        except (ValueError, RecursionError):
            return ()
    if not isinstance(ranks, (list, tuple)) or len(ranks) > MOST_RANKS:
        return ()
    return tuple(rank for rank in ranks if type(rank) is int and 0 <= rank < MOST_RANKS)


def _text(value: Any) -> str:
    return (value if isinstance(value, str) else str(value) if isinstance(value, int) else "")[:_LONGEST_TEXT]


def _texts(values: Any) -> tuple[str, ...]:
    return tuple(_text(value) for value in values[:_MOST_DIMENSIONS]) if isinstance(values, list) else ()


def _whole(value: Any) -> int:
    if isinstance(value, str) and len(value) <= 24:
        value = int(value)
    return value if type(value) is int and abs(value) < 1 << 64 else 0


def _sizes(values: Any) -> tuple[tuple[int, ...], ...]:
    if not isinstance(values, list):
        return ()
    return tuple(
        tuple(_whole(size) for size in shape[:_MOST_DIMENSIONS])
        for shape in values[:_MOST_DIMENSIONS]
        if isinstance(shape, list)
    )
