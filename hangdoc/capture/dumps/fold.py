"""The digests of all dumps, joined: what equal ranks did is kept once, and their journals share it.

Memory grows with the number of different behaviours, and by one reference for each call of a rank.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from hangdoc.capture.dumps.digest import when_begun
from hangdoc.capture.read.flight_recorder import to_global_rank
from hangdoc.model.journal import Call, Journal, PointToPoint, ProcessGroup
from hangdoc.model.process import Frame, Stack

MOST_CALLS = 250_000
"""Different calls that are kept in memory, about 250 bytes each. Of ranks that have more, the newest are kept."""
FEWEST_CALLS = 100
"""Of each rank, however many different ones there are."""
_MOST_ROWS = 1_000_000
"""Rows of bodies, about 32 bytes each, before only the newest of each further body are kept."""
_MOST_NEW = 1 << 19
"""Frames, templates and members in all tables together: what more dumps bring is refused."""

_SEQUENCE, _CALL_OP_ID, _CALL_STACK, _CALL_CREATED = map(
    Call.__match_args__.index, ("sequence", "op_id", "stack", "created_ns")
)
_MESSAGE_OP_ID, _MESSAGE_STACK, _MESSAGE_CREATED = map(
    PointToPoint.__match_args__.index, ("op_id", "stack", "created_ns")
)


@dataclass(frozen=True, slots=True)
class Template:
    """What some calls of a group have in common: ``Call``, or ``PointToPoint``, with that number of a group."""

    group: int
    call: Call | PointToPoint


@dataclass(slots=True)
class Body:
    """The rows of a behaviour, the oldest first: numbers of templates, and the columns of ``digest.body``."""

    templates: array[int]
    sequences: array[int]
    op_ids: array[int]
    created: array[int]
    dropped: int = 0
    """Older rows that were not kept."""

    def __len__(self) -> int:
        return len(self.templates)


@dataclass(slots=True)
class Dump:
    """What one file says of its rank."""

    file: int
    groups: tuple[ProcessGroup, ...]
    names: tuple[str, ...]
    """Of the groups in ``Template.group``."""
    places: tuple[tuple[str, int], ...]
    """(group, this rank's place among its members), where its point-to-point calls show it."""
    counters: tuple[tuple[str, int, int], ...]
    forgotten: int
    first_ns: int
    """When the oldest call that is left was issued; 0 where there is none."""
    last_ns: int
    active_only: bool
    with_frames: bool
    calls: int
    body: Body
    own: tuple[tuple[int, Call | PointToPoint], ...]
    """(how many calls, or messages, of the body follow it; the call)"""


@dataclass(slots=True)
class _Numbers:
    """What the numbers in one worker's answers mean."""

    stacks: list[int]
    templates: list[int]
    members: list[tuple[int, ...]]
    bodies: dict[int, Body]


class TooMuchError(ValueError):
    """The dumps of a folder have too little in common."""


class Folding:
    """Takes the workers' answers one by one, each worker's in its order; gives the journals in the end."""

    def __init__(self, files: int) -> None:
        """``files``: how many dumps there will be at most."""
        self._fewest = max(FEWEST_CALLS, _MOST_ROWS // max(1, files))
        self._stacks: dict[Stack, int] = {}
        self._frames: dict[tuple[str, int, str], Frame] = {}
        self._templates: list[Template] = []
        self._template_of: dict[tuple[int, Call | PointToPoint], int] = {}
        self._members: dict[tuple[int, ...], tuple[int, ...]] = {}
        self._groups: dict[tuple[str, str, int], ProcessGroup] = {}
        self._tuples: dict[Any, Any] = {}
        self._bodies: dict[tuple[Any, ...], Body] = {}
        self._workers: dict[int, _Numbers] = {}
        self._rows = 0
        self._new = 0

    def add(self, file: int, worker: int, answer: dict[str, Any]) -> Dump:
        """The digest of that file. Raises ``TooMuchError``."""
        numbers = self._workers.setdefault(worker, _Numbers([], [], [], {}))
        self._learn(numbers, answer["new"])
        names = self._once(tuple(answer["names"]))
        groups = tuple(self._group(name, text, numbers.members[of]) for name, text, of in answer["groups"])
        rows = answer.get("rows")
        if rows is not None:
            numbers.bodies[answer["body"]] = self._body([numbers.templates[number] for number in rows[0]], *rows[1:])
        return Dump(
            file=file,
            groups=self._once(groups),
            names=names,
            places=tuple((names[group], place) for group, place in answer["places"]),
            counters=self._once(tuple((name, enqueued, completed) for name, enqueued, completed in answer["counters"])),
            forgotten=answer["forgotten"],
            first_ns=answer["first"],
            last_ns=answer["last"],
            active_only=answer["active"],
            with_frames=answer["frames"],
            calls=answer["calls"],
            body=numbers.bodies[answer["body"]],
            own=tuple((after, self._own(numbers.templates[of], names, *row)) for after, of, *row in answer["own"]),
        )

    def _own(self, number: int, names: tuple[str, ...], sequence: int, op_id: int, created: int) -> Call | PointToPoint:
        template = self._templates[number]
        call, group = template.call, names[template.group]
        if isinstance(call, Call):
            return replace(call, group=group, sequence=sequence, op_id=op_id, created_ns=created)
        return replace(call, group=group, op_id=op_id, created_ns=created)

    def _once(self, value: Any) -> Any:
        return self._tuples.setdefault(value, value)

    def _learn(self, numbers: _Numbers, new: dict[str, Any]) -> None:
        """The rows that this worker added to its tables."""
        self._new += sum(map(len, new["stacks"])) + len(new["templates"]) + sum(map(len, new["members"]))
        if self._new > _MOST_NEW:
            raise TooMuchError("it has too little in common with the other dumps here")
        for rows in new["stacks"]:
            stack = tuple(self._frame(tuple(row)) for row in rows)
            numbers.stacks.append(self._stacks.setdefault(stack, len(self._stacks)))
        for row in new["members"]:
            members = tuple(row)
            numbers.members.append(self._members.setdefault(members, members))
        for group, is_call, fields in new["templates"]:
            call = self._call(numbers, is_call, fields)
            number = self._template_of.setdefault((group, call), len(self._templates))
            if number == len(self._templates):
                self._templates.append(Template(group, call))
            numbers.templates.append(number)

    def _frame(self, row: tuple[str, int, str]) -> Frame:
        return self._frames.setdefault(row, Frame(*row))

    def _call(self, numbers: _Numbers, is_call: bool, fields: list[Any]) -> Call | PointToPoint:
        values = [_plain(value) for value in fields]
        at = _CALL_STACK if is_call else _MESSAGE_STACK
        values[at] = numbers.stacks[values[at]] if values[at] >= 0 else -1
        return Call(*values) if is_call else PointToPoint(*values)

    def _group(self, name: str, description: str, members: tuple[int, ...]) -> ProcessGroup:
        key = (name, description, id(members))
        return self._groups.get(key) or self._groups.setdefault(key, ProcessGroup(name, members, description))

    def _body(self, *rows: list[int]) -> Body:
        columns = [array("q", row) for row in rows]
        key = (*(column.tobytes() for column in columns[:-1]), when_begun(rows[-1]))
        known = self._bodies.get(key)
        if known is None:
            dropped = 0
            if self._rows > _MOST_ROWS // 2:
                dropped = max(0, len(columns[0]) - self._fewest)
                columns = [column[dropped:] for column in columns]
            self._rows += len(columns[0])
            templates, sequences, op_ids, created = columns
            known = self._bodies[key] = Body(templates, sequences, op_ids, created, dropped)
        return known

    def journals(self, dumps: Iterable[tuple[Dump, float]]) -> list[Journal]:
        """One for each (dump, when its file was written)."""
        dumps = list(dumps)
        different = {(id(dump.body), dump.names): len(dump.body) for dump, _ in dumps}
        most = MOST_CALLS
        if sum(different.values()) > MOST_CALLS:
            most = max(FEWEST_CALLS, MOST_CALLS // len(different))
        stacks = tuple(self._stacks)
        known: dict[Any, tuple[tuple[Call, ...], tuple[PointToPoint, ...]]] = {}
        return [self._journal(dump, written, stacks, known, most) for dump, written in dumps]

    def _journal(
        self, dump: Dump, written: float, stacks: tuple[Stack, ...], known: dict[Any, Any], most: int
    ) -> Journal:
        body, members = dump.body, {group.name: group.members for group in dump.groups}
        key = (id(body), dump.names, *(id(members.get(name)) for name in dump.names))
        if key not in known:
            known[key] = self._calls(body, dump.names, members, most)
        calls, messages = known[key]
        own = [
            (after, call if isinstance(call, Call) else to_global_rank(call, members.get(call.group, ())))
            for after, call in dump.own
        ]
        return Journal(
            source="dump",
            groups=dump.groups,
            calls=_with(calls, [(after, call) for after, call in own if isinstance(call, Call)]),
            point_to_points=_with(messages, [(after, call) for after, call in own if isinstance(call, PointToPoint)]),
            forgotten=dump.forgotten + body.dropped + max(0, len(body) - most),
            stacks=stacks,
            counters=dump.counters,
            written=written,
            active_only=dump.active_only,
        )

    def _calls(
        self, body: Body, names: tuple[str, ...], members: dict[str, tuple[int, ...]], most: int
    ) -> tuple[tuple[Call, ...], tuple[PointToPoint, ...]]:
        """The newest calls and messages of a behaviour, in groups of these names."""
        calls: list[Call] = []
        messages: list[PointToPoint] = []
        values: dict[int, tuple[bool, list[Any]]] = {}
        columns = (column[-most:] for column in (body.templates, body.sequences, body.op_ids, body.created))
        for number, sequence, op_id, created in zip(*columns, strict=True):
            if number not in values:
                template = self._templates[number]
                group = names[template.group]
                call = replace(template.call, group=group)
                if isinstance(call, PointToPoint):
                    call = to_global_rank(call, members.get(group, ()))
                values[number] = isinstance(call, Call), [getattr(call, name) for name in type(call).__match_args__]
            is_call, fields = values[number]
            fields = fields.copy()
            if is_call:
                fields[_SEQUENCE], fields[_CALL_OP_ID], fields[_CALL_CREATED] = sequence, op_id, created
                calls.append(Call(*fields))
            else:
                fields[_MESSAGE_OP_ID], fields[_MESSAGE_CREATED] = op_id, created
                messages.append(PointToPoint(*fields))
        return tuple(calls), tuple(messages)


def _plain(value: Any) -> Any:
    return tuple(map(_plain, value)) if isinstance(value, list) else value


def _with(calls: tuple[Any, ...], own: list[tuple[int, Any]]) -> tuple[Any, ...]:
    """``calls`` with those replaced after which so many follow; itself where nothing changes."""
    places = [(len(calls) - 1 - after, call) for after, call in own if after < len(calls)]
    if all(calls[place] == call for place, call in places):
        return calls
    found = list(calls)
    for place, call in places:
        found[place] = call
    return tuple(found)
