"""The digests of all dumps, joined: what equal ranks did is kept once, and their journals share it.

Memory grows with the number of different behaviors, and by one reference for each call of a rank.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from hangdoc.capture.dumps.digest import CALLS, MESSAGES, Rows, when_begun
from hangdoc.capture.read.flight_recorder import Recorded, is_active_only, to_global_rank
from hangdoc.model.journal import Journal, ProcessGroup
from hangdoc.model.operations import operation
from hangdoc.model.process import Frame, Stack
from hangdoc.model.shared_calls import GroupCalls, Order, SharedCalls
from hangdoc.model.shared_calls import Rows as SharedRows

MOST_CALLS = 250_000
"""Different calls that are kept in memory, about 350 bytes each. Of ranks that have more, the newest are kept. The
number is chosen by hand."""
FEWEST_CALLS = 100
"""Of each rank, however many different ones there are; chosen by hand."""
_MOST_ROWS = 1_000_000
"""Rows of bodies, about 48 bytes each, before only the newest of each further body are kept; chosen by hand."""
_MOST_NEW = 1 << 19
"""Frames, templates and members in all tables together: what more dumps bring is refused; chosen by hand."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Calls, or messages, of a behavior, the oldest first: numbers of templates, and the columns of ``Rows``."""

    rows: Rows
    templates: array[int]
    numbers: tuple[array[int], ...]
    dropped: int = 0
    """Older ones that were not kept."""

    def __len__(self) -> int:
        return len(self.templates)

    def newest(self, most: int) -> Columns:
        """The same with at most so many."""
        drop = max(0, len(self) - most)
        if not drop:
            return self
        return Columns(self.rows, self.templates[drop:], tuple(c[drop:] for c in self.numbers), self.dropped + drop)


@dataclass(slots=True)
class Body:
    """What the ranks of one behavior did."""

    calls: Columns
    messages: Columns
    gave_up: tuple[int, ...]
    unsure_numbers: tuple[int, ...]
    """Numbers of groups."""
    places: tuple[tuple[int, int], ...]
    """(number of a group, the rank's place among its members), as its point-to-point calls show."""
    times: tuple[tuple[bool, int], ...]
    """(collective?, place) of the calls that every rank gives a time of its own."""
    numbers: dict[int, tuple[int, int]]
    """Number of a group → numbers of its last completed call that needs all its ranks, and of its last call."""

    def __len__(self) -> int:
        return len(self.calls) + len(self.messages)


@dataclass(slots=True)
class Dump:
    """What one file says of its rank."""

    groups: tuple[ProcessGroup, ...]
    names: tuple[str, ...]
    """Of the groups by number."""
    counters: tuple[tuple[str, int, int], ...]
    status: tuple[tuple[str, int, int, int], ...]
    forgotten: int
    first_ns: int
    """When the oldest call that is left was issued; 0 where there is none."""
    latest_ns: int
    moved_ns: int
    body: Body
    own: tuple[int, ...]
    """When the calls of ``Body.times`` were issued."""
    active_only: bool
    with_frames: bool
    library: str = ""
    """The version of the library that communicates."""

    @property
    def places(self) -> list[tuple[str, int]]:
        """(group, this rank's place among its members), where its point-to-point calls show it."""
        return [(self.names[group], place) for group, place in self.body.places if 0 <= group < len(self.names)]


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
        self._templates: dict[tuple[Any, ...], int] = {}
        self._rows_of: list[tuple[Any, ...]] = []
        self._members: dict[tuple[int, ...], tuple[int, ...]] = {}
        self._groups: dict[tuple[str, str, int], ProcessGroup] = {}
        self._tuples: dict[Any, Any] = {}
        self._bodies: dict[Any, Body] = {}
        self._workers: dict[int, _Numbers] = {}
        self._rows = 0
        self._new = 0

    def add(self, worker: int, answer: dict[str, Any]) -> Dump:
        """The digest of a file. Raises ``TooMuchError``."""
        numbers = self._workers.setdefault(worker, _Numbers([], [], [], {}))
        self._learn(numbers, answer["new"])
        if "calls" in answer:
            numbers.bodies[answer["body"]] = self._body(numbers, answer)
        body = numbers.bodies[answer["body"]]
        counters = self._once(_plain(answer["counters"]))
        return Dump(
            groups=self._once(tuple(self._group(n, text, numbers.members[of]) for n, text, of in answer["groups"])),
            names=self._once(tuple(answer["names"])),
            counters=counters,
            status=self._once(_plain(answer["status"])),
            forgotten=answer["forgotten"],
            first_ns=answer["first"],
            latest_ns=answer["latest"],
            moved_ns=answer["moved"],
            body=body,
            own=tuple(answer["own"]),
            active_only=is_active_only(
                answer["forgotten"],
                counters,
                shows_calls=len(body) > 0,
                shows_completed=self._any(body, "completed", True),
            ),
            with_frames=self._any(body, "stack", 0),
            library=answer["library"],
        )

    def _once(self, value: Any) -> Any:
        return self._tuples.setdefault(value, value)

    def _any(self, body: Body, name: str, least: int) -> bool:
        """Has any call of the body at least that value in the field ``name``?"""
        key = (id(body), name)
        if key not in self._tuples:
            self._tuples[key] = any(
                self._rows_of[number][columns.rows.others.index(name) + _BEFORE] >= least
                for columns in (body.calls, body.messages)
                for number in set(columns.templates)
            )
        found: bool = self._tuples[key]
        return found

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
        for row in new["templates"]:
            template = [_plain(value) for value in row]
            at = (CALLS if template[0] else MESSAGES).others.index("stack") + _BEFORE
            template[at] = numbers.stacks[template[at]] if template[at] >= 0 else -1
            number = self._templates.setdefault(tuple(template), len(self._rows_of))
            if number == len(self._rows_of):
                self._rows_of.append(tuple(template))
            numbers.templates.append(number)

    def _frame(self, row: tuple[str, int, str]) -> Frame:
        return self._frames.get(row) or self._frames.setdefault(row, Frame(*row))

    def _group(self, name: str, description: str, members: tuple[int, ...]) -> ProcessGroup:
        key = (name, description, id(members))
        return self._groups.get(key) or self._groups.setdefault(key, ProcessGroup(name, members, description))

    def _body(self, numbers: _Numbers, answer: dict[str, Any]) -> Body:
        """The body of an answer; the one that another worker has sent already, where it is the same."""
        calls = _columns(CALLS, numbers, answer["calls"])
        messages = _columns(MESSAGES, numbers, answer["messages"])
        parts = tuple(_plain(answer[name]) for name in ("gave_up", "unsure_numbers", "places", "times"))
        key = (_same(calls), _same(messages), parts, tuple(answer["order"]))
        known = self._bodies.get(key)
        if known is None:
            if self._rows > _MOST_ROWS // 2:
                calls, messages = calls.newest(self._fewest), messages.newest(self._fewest)
            known = Body(calls, messages, parts[0], parts[1], parts[2], parts[3], self._last_numbers(calls))
            self._bodies[key] = known
            self._rows += len(known)
        return known

    def _last_numbers(self, calls: Columns) -> dict[int, tuple[int, int]]:
        """``Body.numbers``."""
        op, completed = (calls.rows.others.index(name) + _BEFORE for name in ("op", "completed"))
        sequences = calls.numbers[calls.rows.numbers.index("sequence")]
        last: dict[int, int] = dict(zip(calls.templates, sequences, strict=True))
        found: dict[int, tuple[int, int]] = {}
        for number, sequence in last.items():
            row = self._rows_of[number]
            meeting = sequence if row[completed] and not operation(row[op]).rooted else 0
            done, issued = found.get(row[1], (0, 0))
            found[row[1]] = max(done, meeting), max(issued, sequence)
        return found

    def journals(self, dumps: Iterable[tuple[Dump, float]]) -> list[Journal]:
        """One for each (dump, Unix time of its file)."""
        return _Journals(list(dumps), self._rows_of, tuple(self._stacks)).all()


class _Journals:
    """Makes the journals of dumps. The calls of a behavior in one group are made once, for all ranks of the group."""

    def __init__(
        self, dumps: list[tuple[Dump, float]], templates: list[tuple[Any, ...]], stacks: tuple[Stack, ...]
    ) -> None:
        self._dumps, self._templates, self._stacks = dumps, templates, stacks
        bodies = {id(dump.body): dump.body for dump, _ in dumps}
        self._in_groups = {
            id(columns): self._places(columns) for body in bodies.values() for columns in (body.calls, body.messages)
        }
        most = self._most()
        self._columns = {key: (b.calls.newest(most), b.messages.newest(most)) for key, b in bodies.items()}
        cut = (columns for both in self._columns.values() for columns in both)
        self._in_groups = {id(columns): self._places(columns) for columns in cut}
        self._made: dict[Any, list[Any]] = {}
        self._joined: dict[Any, tuple[Any, ...]] = {}
        self._shared = {id(calls): self._rows(calls) for calls, _ in self._columns.values()}
        self._parts: dict[tuple[str, SharedRows], GroupCalls] = {}
        self._bases: dict[tuple[Order, tuple[str, ...]], SharedCalls] = {}

    def _places(self, columns: Columns) -> dict[int, list[int]]:
        """Number of a group → places of its calls."""
        group_of = {number: self._templates[number][1] for number in set(columns.templates)}
        found: dict[int, list[int]] = {}
        for place, number in enumerate(columns.templates):
            found.setdefault(group_of[number], []).append(place)
        return found

    def _most(self) -> int:
        """How many calls of each rank are kept: all, unless too many of them are different."""
        made: dict[Any, int] = {}
        for dump, _ in self._dumps:
            for columns in (dump.body.calls, dump.body.messages):
                for group, places in self._in_groups[id(columns)].items():
                    made[id(columns), dump.names[group]] = len(places)
        if sum(made.values()) <= MOST_CALLS:
            return _ALL
        different = len({(id(dump.body), dump.names) for dump, _ in self._dumps})
        return max(FEWEST_CALLS, MOST_CALLS // different)

    def all(self) -> list[Journal]:
        """In the order of the dumps."""
        return [self._journal(dump, written) for dump, written in self._dumps]

    def _journal(self, dump: Dump, written: float) -> Journal:
        members = {group.name: group.members for group in dump.groups}
        both = self._columns[id(dump.body)]
        calls, messages = self._calls(both[0], dump.names), self._messages(both[1], dump.names, members)
        recorded = Recorded(
            calls=calls,
            point_to_points=messages,
            groups=dump.groups,
            counters=dump.counters,
            forgotten=dump.forgotten + sum(columns.dropped for columns in both),
            gave_up=tuple(place - both[0].dropped for place in dump.body.gave_up if place >= both[0].dropped),
            status=dump.status,
            latest_ns=dump.latest_ns,
            moved_ns=dump.moved_ns,
            unsure_numbers=tuple(dump.names[group] for group in dump.body.unsure_numbers),
            active_only=dump.active_only,
        )
        return replace(recorded.as_journal(self._stacks, written), issued_at=self._issued_at(dump, calls, messages))

    def _issued_at(self, dump: Dump, calls: SharedCalls, messages: tuple[Any, ...]) -> tuple[Any, ...]:
        """``Journal.issued_at``: the calls and messages keep one rank's times, as their order goes by these."""
        found = []
        for (is_call, at), created in zip(dump.body.times, dump.own, strict=True):
            place = at - self._columns[id(dump.body)][not is_call].dropped
            if place >= 0 and (calls.row(place) if is_call else messages[place]).created_ns != created:
                found.append(("call" if is_call else "message", place, created))
        return tuple(found)

    def _rows(self, columns: Columns) -> tuple[Order, list[tuple[int, SharedRows]]]:
        """(the order of those calls, the rows of each group by its number)."""
        places = self._in_groups[id(columns)]
        part_of = {group: part for part, group in enumerate(places)}
        order = Order([part_of[self._templates[number][1]] for number in columns.templates])
        return order, [(group, SharedRows(self._make(columns, own, "", ()))) for group, own in places.items()]

    def _calls(self, columns: Columns, names: tuple[str, ...]) -> SharedCalls:
        """Those calls, in groups of these names."""
        order, rows = self._shared[id(columns)]
        key = order, names
        if key not in self._bases:
            self._bases[key] = SharedCalls(tuple(self._part(names[group], own) for group, own in rows), order)
        return self._bases[key]

    def _part(self, group: str, rows: SharedRows) -> GroupCalls:
        """One for all members of the group."""
        return self._parts.get((group, rows)) or self._parts.setdefault((group, rows), GroupCalls(group, rows))

    def _messages(
        self, columns: Columns, names: tuple[str, ...], members: dict[str, tuple[int, ...]]
    ) -> tuple[Any, ...]:
        """Those messages, in groups of these names and members."""
        places = self._in_groups[id(columns)]
        parts = [(group, names[group], id(members.get(names[group]))) for group in places]
        key = (id(columns), *parts)
        if key not in self._joined:
            found: list[Any] = [None] * len(columns)
            for part in parts:
                group, name, _ = part
                if (id(columns), part) not in self._made:
                    self._made[id(columns), part] = self._make(columns, places[group], name, members.get(name, ()))
                for place, call in zip(places[group], self._made[id(columns), part], strict=True):
                    found[place] = call
            self._joined[key] = tuple(found)
        return self._joined[key]

    def _make(self, columns: Columns, places: list[int], name: str, members: tuple[int, ...]) -> list[Any]:
        """The calls at these places, which are in the group of that name."""
        rows = columns.rows
        templates: dict[int, list[Any]] = {}
        calls = []
        for place in places:
            number = columns.templates[place]
            template = templates.get(number)
            if template is None:
                template = templates[number] = list(self._templates[number][_BEFORE:])
                template[rows.others.index("group")] = name
            calls.append(rows.make(template, tuple(column[place] for column in columns.numbers)))
        return [to_global_rank(call, members) for call in calls] if rows is MESSAGES else calls


_ALL = 1 << 62
"""More calls than any rank has."""
_BEFORE = 2
"""Items of a template before the fields: is it of a collective, and the number of its group."""


def _columns(rows: Rows, numbers: _Numbers, answer: dict[str, Any]) -> Columns:
    templates = array("q", [numbers.templates[number] for number in answer["templates"]])
    columns = zip(*answer["numbers"], strict=True) if answer["numbers"] else ([] for _ in rows.numbers)
    return Columns(rows, templates, tuple(array("q", column) for column in columns))


def _same(columns: Columns) -> tuple[Any, ...]:
    """What two bodies agree on if they are the same: all but the times."""
    rows = zip(columns.rows.numbers, columns.numbers, strict=True)
    compared = [column.tobytes() if not name.endswith("_ns") else bytes(map(bool, column)) for name, column in rows]
    begun = when_begun(columns.numbers[columns.rows.numbers.index("created_ns")])
    return (columns.templates.tobytes(), *compared, begun)


def _plain(value: Any) -> Any:
    return tuple(map(_plain, value)) if isinstance(value, list) else value
