"""Facts from a probe's answers. They come from the job: what does not fit is refused or left out."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from hangdoc.capture.read import flight_recorder
from hangdoc.capture.read.branches import NOTHING_RECORDED
from hangdoc.capture.read.branches import Recorded as RecordedBranches
from hangdoc.capture.read.branches import recorded as recorded_branches
from hangdoc.capture.read.flight_recorder import Recorded, StackTable
from hangdoc.capture.read.recorder_groups import counters as counters_of
from hangdoc.capture.safe.foreign import parse_json
from hangdoc.capture.safe.pickles import unpickle
from hangdoc.capture.safe.text import clean
from hangdoc.model.frames import own_frames
from hangdoc.model.journal import PHASES, Attribute, Call, Journal, Phase, PointToPoint, ProcessGroup, StoreWait
from hangdoc.model.launch import MEETING_NAMES
from hangdoc.model.masking import mask_lines
from hangdoc.model.operations import operation
from hangdoc.model.process import Frame, Raised, Stack
from hangdoc.model.snapshot import Unavailable

_LONGEST_TEXT = 4096
_MOST_PARTS = 8
"""Of an answer, one for each recorder: what the probe asks for at most."""
_MOST_CHAINED = 8
"""Exceptions that one was raised from: twice what the probe says. Judgement."""
_MOST_TYPED_IN = 64
_MOST_MODULES = 4000
_LONGEST_TYPED_IN = 1 << 17
"""Files that are nowhere but in the process, and characters of one: twice what the probe says. Judgement."""
_MOST_ROWS = 20_000
"""Ten times what the probe keeps of anything."""


@dataclass(frozen=True, slots=True)
class ProbeCounters:
    """The cheap facts about a rank.

    ``groups`` maps the recorder's number of a group (mostly its name) to the last enqueued and last completed
    operation; completed is -1 where only a backend's own count is known. ``in_store``: the main thread
    is inside a store call or a constructor of a store or backend.
    """

    pid: int
    rank: int | None
    world_size: int | None
    local_rank: int | None
    restart: int
    groups: dict[str, tuple[int, int]]
    group_count: int
    initialized: bool
    point_to_points: int
    store_calls: int
    in_store: bool


@dataclass(frozen=True, slots=True)
class TypedIn:
    """Code that the process has compiled and no file holds. ``cell`` is the notebook's number of it, In[3], or 0."""

    file: str
    cell: int
    text: str


@dataclass(frozen=True, slots=True)
class ProbeDetails:
    """The long answer. ``unavailable``: the parts of it that could not be read."""

    counters: ProbeCounters
    journal: Journal
    first_store: Stack = ()
    """Where the rank made its first store or group."""
    suspended: tuple[tuple[int, Stack], ...] = ()
    """For each task of an idle event loop: the Python id of the loop's thread, the task's frames innermost first."""
    counts_lines: bool = False
    """CPython 3.11 has counted from each function's first call on which of its lines have run."""
    branches: RecordedBranches = NOTHING_RECORDED
    library_roots: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    """The files of what the process has imported, without those below ``library_roots``."""
    typed_in: tuple[TypedIn, ...] = ()
    meets_at: tuple[tuple[str, str], ...] = ()
    """MASTER_ADDR and MASTER_PORT as the process has them by now: a program may set them itself."""
    environment: tuple[tuple[str, str], ...] = ()
    """The rank's ``os.environ`` as the process itself has it by now, where it was asked for (injection)."""
    unsure_calls: tuple[int, ...] = ()
    """As of ``Recorded``."""
    unavailable: tuple[Unavailable, ...] = ()


def counters(header: dict[str, Any], body: bytes) -> ProbeCounters:
    """The facts of the short answer. ValueError or TypeError if it has the wrong form."""
    groups: dict[str, tuple[int, int]] = {}
    for number, part in enumerate(_parts(header, body)):
        recorded: Any = parse_json(part)
        if not isinstance(recorded, dict):
            raise TypeError("its counters are no object")
        # Each recorder numbers its groups from 0.
        mark = f"{number}:" if number else ""
        for name, enqueued, completed in counters_of(recorded.get("pg_status"), {}):
            groups[mark + name] = enqueued, completed
    sequences = header.get("sequences")
    if not groups and isinstance(sequences, dict):
        groups = {_text(name): (_whole(count), -1) for name, count in sequences.items()}
    return _plain_counters(header, groups)


def introduction(header: dict[str, Any]) -> ProbeCounters:
    """Which rank a probe belongs to, from its first note. ValueError or TypeError if the note has the wrong form."""
    return _plain_counters(header, {})


def _plain_counters(header: dict[str, Any], groups: dict[str, tuple[int, int]]) -> ProbeCounters:
    return ProbeCounters(
        pid=_whole(header.get("pid")),
        rank=_maybe(header.get("rank")),
        world_size=_maybe(header.get("world_size")),
        local_rank=_maybe(header.get("local_rank")),
        restart=_maybe(header.get("restart")) or 0,
        groups=groups,
        group_count=_maybe(header.get("groups")) or 0,
        initialized=header.get("initialized") is True,
        point_to_points=_maybe(header.get("point_to_points")) or 0,
        store_calls=_maybe(header.get("store_calls")) or 0,
        in_store=header.get("in_store") is True,
    )


def details(header: dict[str, Any], body: bytes) -> ProbeDetails:
    """The facts of the long answer. ValueError or TypeError if it has the wrong form."""
    table = StackTable.new()
    stacks = _Stacks([stack(rows) for rows in _list(header.get("stacks"))], table)
    groups = _groups(header, stacks)
    recorded, unavailable = _recorded(header, body, table, groups)
    # The probe notes the root of a rooted collective as the peer of a point-to-point call with the same number.
    noted = _point_to_points(header, stacks)
    handled = _list(header.get("handled"))
    journal = Journal(
        source="probe",
        groups=groups,
        calls=_with_roots(recorded.calls, noted, groups),
        point_to_points=_merged(tuple(call for call in noted if not operation(call.op).rooted), recorded),
        forgotten=max(_maybe(header.get("forgotten")) or 0, recorded.forgotten),
        store_waits=_store_waits(header, stacks),
        stacks=tuple(table.stacks),
        attributes=_attributes(header),
        traces=_traces(header),
        counters=recorded.counters,
        failure=_text(header.get("exception") or "")[:200],
        failed_at=stack(header.get("raised_at")),
        phases=_phases(header),
        handled=_text(handled[0])[:200] if len(handled) == 2 else "",
        handled_at=stack(handled[1]) if len(handled) == 2 else (),
        handled_message=message(header.get("handled_message")),
        handled_from=raised_from(header.get("handled_from")),
    )
    return ProbeDetails(
        counters=_plain_counters(header, {name: (enq, done) for name, enq, done in recorded.counters}),
        journal=journal,
        first_store=stacks.whole(header.get("first_store")) or (),
        suspended=tuple(
            (_whole(thread), found)
            for thread, at in _rows(header.get("suspended"), 2)
            if (found := stacks.whole(at)) is not None
        ),
        counts_lines=header.get("counts_lines") is True,
        branches=recorded_branches(header.get("branches"), _text(header.get("python"))),
        library_roots=tuple(_text(root) for root in _list(header.get("library_roots"))),
        modules=tuple(_text(file) for file in _list(header.get("modules"))[:_MOST_MODULES]),
        typed_in=tuple(
            TypedIn(_text(file), _maybe(cell) or 0, text)
            for file, cell, text in _rows(header.get("typed_in"), 3)[:_MOST_TYPED_IN]
            if isinstance(text, str) and len(text) <= _LONGEST_TYPED_IN
        ),
        meets_at=tuple(pair for pair in _environment(header.get("meets_at")) if pair[0] in MEETING_NAMES),
        environment=_environment(header.get("environment")),
        unsure_calls=recorded.unsure_calls,
        unavailable=unavailable,
    )


class _Stacks:
    """The stacks of an answer, and their places in the journal's table, which leaves out what started the process."""

    def __init__(self, stacks: list[Stack], table: StackTable) -> None:
        self._stacks = stacks
        self._places = [table.add(frames) for frames in stacks]

    def place(self, number: Any) -> int:
        """Index into ``Journal.stacks`` of the answer's stack with that number; -1 if there is none."""
        number = _whole(number)
        return self._places[number] if 0 <= number < len(self._places) else -1

    def whole(self, number: Any) -> Stack | None:
        """The answer's stack with that number, all frames of it."""
        number = _whole(number)
        return self._stacks[number] if 0 <= number < len(self._stacks) else None


def _groups(header: dict[str, Any], stacks: _Stacks) -> tuple[ProcessGroup, ...]:
    destroyed = {_text(name) for name in _list(header.get("destroyed"))}
    return tuple(
        ProcessGroup(
            _text(name),
            tuple(_whole(r) for r in _list(ranks)),
            _text(desc),
            _text(backend),
            stacks.place(at),
            destroyed=_text(name) in destroyed,
        )
        for name, ranks, desc, backend, at in _rows(header.get("group_table"), 5)
    )


def _point_to_points(header: dict[str, Any], stacks: _Stacks) -> tuple[PointToPoint, ...]:
    return tuple(
        PointToPoint(
            group=_text(group),
            op_id=_whole(op_id),
            op=_text(op),
            peer=_whole(peer),
            tag=_whole(tag),
            stack=stacks.place(issued_at),
            created_ns=_whole(at),
            completed=completed is True,
            thread_id=_whole(thread),
        )
        for op, group, op_id, peer, tag, issued_at, at, completed, thread in _rows(
            header.get("point_to_point_calls"), 9
        )
    )


def _attributes(header: dict[str, Any]) -> tuple[Attribute, ...]:
    return tuple(
        Attribute(_text(file), _whole(line), _text(function), _text(name), _text(value), _text(owner))
        for file, line, function, name, value, owner in _rows(header.get("attributes"), 6)
    )


def _traces(header: dict[str, Any]) -> tuple[Attribute, ...]:
    return tuple(
        Attribute(_text(file), 0, _text(kind), _text(name), _text(value), _text(owner))
        for file, kind, owner, name, value in _rows(header.get("traces"), 5)
    )


def _store_waits(header: dict[str, Any], stacks: _Stacks) -> tuple[StoreWait, ...]:
    return tuple(
        StoreWait(_text(op), tuple(_text(key) for key in _list(keys)), stacks.place(called_at), _whole(thread))
        for op, keys, called_at, _, thread in _rows(header.get("store_wait_calls"), 5)
    )


def _phases(header: dict[str, Any]) -> tuple[Phase, ...]:
    return tuple(
        Phase(name, _whole(begun), _whole(ended), _whole(thread))
        for name, begun, ended, thread in _rows(header.get("phases"), 4)
        if name in PHASES and _whole(begun) > 0 and (not ended or _whole(begun) <= _whole(ended))
    )


def _with_roots(
    calls: Sequence[Call], noted: tuple[PointToPoint, ...], groups: tuple[ProcessGroup, ...]
) -> tuple[Call, ...]:
    """``calls``, the rooted ones with the root's place among the group's members, where the probe ``noted`` it.

    Both count a group's operations; of a recorder that counts in another way the times tell: the probe's note lies
    between the call and the one that the thread issued before.
    """
    places = {group.name: {member: place for place, member in enumerate(group.members)} for group in groups}
    rooted = [note for note in noted if operation(note.op).rooted and note.peer in places.get(note.group, ())]
    by_number = {(each.group, each.op_id): each for each in rooted}
    by_thread: dict[tuple[int, str, str], list[PointToPoint]] = {}
    for each in rooted:
        by_thread.setdefault((each.thread_id, each.group, each.op), []).append(each)
    before: dict[int, int] = {}
    roots: list[int | None] = []
    for call in calls:
        note = by_number.get((call.group, call.op_id))
        if not call.op_id:
            notes = by_thread.get((call.thread_id, call.group, call.op), [])
            at = bisect_right(notes, call.created_ns, key=lambda earlier: earlier.created_ns) - 1
            note = notes[at] if at >= 0 and notes[at].created_ns >= before.get(call.thread_id, 0) else None
        roots.append(places[note.group][note.peer] if note is not None and operation(call.op).rooted else None)
        before[call.thread_id] = call.created_ns
    return tuple(call if root is None else replace(call, root=root) for call, root in zip(calls, roots, strict=True))


def _recorded(
    header: dict[str, Any], body: bytes, table: StackTable, groups: tuple[ProcessGroup, ...]
) -> tuple[Recorded, tuple[Unavailable, ...]]:
    """(what all recorders of the rank have recorded, joined; why parts could not be read)."""
    joined, failed = Recorded((), (), (), ()), []
    parts = _parts(header, body)
    if not parts:
        why = f"torch {_text(header.get('torch'))}'s flight recorder gave no history"
        remedy = "torch 2.8 or newer keeps one for gloo, 2.5 or newer for nccl; TORCH_FR_BUFFER_SIZE must not be 0"
        failed.append(Unavailable("journal", why, remedy))
    for part in parts:
        try:
            found = flight_recorder.parse(unpickle(part), table, groups)
        except (OSError, ValueError, RecursionError, MemoryError) as error:
            found = Unavailable("journal", f"the flight recorder's history cannot be read: {clean(str(error), 300)}")
        if isinstance(found, Unavailable):
            failed.append(found)
        else:
            unsure = tuple(len(joined.calls) + place for place in found.unsure_calls)
            joined = Recorded(
                (*joined.calls, *found.calls),
                joined.point_to_points + found.point_to_points,
                joined.groups + found.groups,
                joined.counters + found.counters,
                max(joined.forgotten, found.forgotten if found.point_to_points else 0),
                unsure_calls=joined.unsure_calls + unsure,
                unsure_messages=joined.unsure_messages | found.unsure_messages,
            )
    if len(parts) > 1:
        order = sorted(range(len(joined.calls)), key=lambda place: joined.calls[place].created_ns)
        doubted = set(joined.unsure_calls)
        unsure = tuple(new for new, old in enumerate(order) if old in doubted)
        joined = replace(joined, calls=tuple(joined.calls[place] for place in order), unsure_calls=unsure)
    return joined, tuple(failed)


def _parts(header: dict[str, Any], body: bytes) -> list[bytes]:
    """``body`` cut as ``parts`` says: one part for each recorder that answered."""
    sizes = header.get("parts")
    if not isinstance(sizes, list) or any(type(size) is not int or size < 0 for size in sizes):
        raise ValueError("it does not say how long its parts are")
    if sum(sizes) != len(body) or len(sizes) > _MOST_PARTS:
        raise ValueError("its parts are not as long as it says")
    ends = list(itertools.accumulate(sizes))
    return [body[end - size : end] for size, end in zip(sizes, ends, strict=True)]


def _merged(probed: tuple[PointToPoint, ...], recorded: Recorded) -> tuple[PointToPoint, ...]:
    """The calls of both, those of a group from one source: the recorder, if it has some and sees when they end (nccl),
    else the probe, if it has some."""
    noted = {call.group for call in probed}
    theirs = [call for call in recorded.point_to_points if call.group not in noted & recorded.unsure_messages]
    known = {call.group for call in theirs}
    kept = [call for call in probed if call.group not in known or call.op == "monitored_barrier"]
    return tuple(sorted([*theirs, *kept], key=lambda call: call.created_ns))


def stack(rows: Any) -> Stack:
    """[[file, line, function], …] → frames, without malformed rows and without the frames that started the process."""
    frames = (Frame(_text(file), _whole(line), _text(function)) for file, line, function in _rows(rows, 3))
    return own_frames(tuple(frames))


def message(value: Any) -> str:
    """An exception's own text, masked, its control characters escaped line by line."""
    return "\n".join(clean(line, _LONGEST_TEXT) for line in mask_lines(_text(value).splitlines()))


def raised_from(rows: Any) -> tuple[Raised, ...]:
    """[[type, text, place, whether by `from`], …] → what an exception was raised from."""
    return tuple(
        Raised(_text(name)[:200], message(text), stack(place), direct is True)
        for name, text, place, direct in _rows(rows, 4)[:_MOST_CHAINED]
    )


def _environment(value: Any) -> tuple[tuple[str, str], ...]:
    found = value.items() if isinstance(value, dict) else ()
    return tuple(sorted((_text(name), _text(text)) for name, text in found))


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _rows(value: Any, width: int) -> list[list[Any]]:
    return [row for row in _list(value)[-_MOST_ROWS:] if isinstance(row, list) and len(row) == width]


def _text(value: Any) -> str:
    return value[:_LONGEST_TEXT] if isinstance(value, str) else ""


def _whole(value: Any) -> int:
    return value if type(value) is int and abs(value) < 1 << 64 else -1


def _maybe(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < 1 << 64 else None
