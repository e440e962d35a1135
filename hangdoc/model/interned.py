"""A large job for a file: the calls, groups, stacks and what has run, which its ranks have in common, are written once.

``[a, b, c], [a, b, d]`` → the table ``[a, b, c, d]`` and its runs ``[(0, 3)], [(0, 2), (3, 1)]``. Only what is one
object in memory is one row: to compare millions of calls would take longer than to write them. Calls are rows without
the name of their group, as each row of a mesh does the same in a group of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

from hangdoc.model.journal import Call, Journal, PointToPoint, ProcessGroup
from hangdoc.model.process import Stack
from hangdoc.model.ran import RanCode
from hangdoc.model.shared_calls import GroupCalls, Order, Rows, SharedCalls
from hangdoc.model.snapshot import JobSnapshot

INTERNED_SCHEMA = "hangdoc.snapshot/2"
MOST_REFERENCES = 40_000_000
"""Calls and the like of all ranks together that a file may unfold to, 8 bytes each: 4,096 ranks with 5,000 calls, or
with 2,000 in the groups of a mesh."""

Runs = tuple[tuple[int, int], ...]
"""(first row, how many) of a table, again and again."""


@dataclass(frozen=True, slots=True)
class JournalRows:
    """What a journal has in the tables."""

    rank: int
    """Index into ``JobSnapshot.ranks``."""
    groups: Runs
    calls: tuple[Runs, ...]
    """Those of each group. Ranks of a mesh have the calls of a row, or a column, in common, and not the whole."""
    called: tuple[str, ...]
    """The names of those groups."""
    order: int
    """Index into ``InternedJob.orders``; -1 where there is one group at most."""
    point_to_points: Runs
    stacks: Runs


@dataclass(frozen=True, slots=True)
class RanRows:
    """What has run of the program on a rank."""

    rank: int
    """Index into ``JobSnapshot.ranks``."""
    code: Runs


@dataclass(frozen=True, slots=True)
class InternedJob:
    """``job`` is without what the tables have."""

    schema: str
    job: JobSnapshot
    groups: tuple[ProcessGroup, ...]
    calls: tuple[Call, ...]
    """Their groups are ''."""
    point_to_points: tuple[PointToPoint, ...]
    stacks: tuple[Stack, ...]
    orders: tuple[tuple[int, ...], ...]
    """How the calls of several groups follow each other: an index into ``JournalRows.calls`` for each call."""
    journals: tuple[JournalRows, ...]
    code: tuple[RanCode, ...] = ()
    """Alike ones once: most functions have run the same lines on all ranks."""
    ran: tuple[RanRows, ...] = ()


_WHOLE = ("groups", "point_to_points", "stacks")
_PARTS = (*_WHOLE, "calls")
_all_but_group = attrgetter(*(name for name in Call.__match_args__ if name != "group"))


def interned(job: JobSnapshot) -> InternedJob:
    """``job`` with its journals in tables."""
    tables = {part: _Table() for part in _WHOLE}
    all_calls = _CallTable()
    rows = []
    orders: dict[tuple[int, ...], int] = {}
    ranks = list(job.ranks)
    code: dict[RanCode, int] = {}
    ran = []
    for index, rank in enumerate(job.ranks):
        if rank.process is not None and rank.process.code:
            ran.append(RanRows(index, tuple(_runs(code.setdefault(each, len(code)) for each in rank.process.code))))
            rank = ranks[index] = replace(rank, process=replace(rank.process, code=()))  # noqa: PLW2901 - without it
        if rank.journal is not None:
            runs = {part: tables[part].runs(getattr(rank.journal, part)) for part in _WHOLE}
            shared = SharedCalls.of(rank.journal.calls)
            order = tuple(shared.order.groups) if len(shared.parts) > 1 else ()
            at = orders.setdefault(order, len(orders)) if order else -1
            calls = tuple(all_calls.runs(shared, number) for number in range(len(shared.parts)))
            called = tuple(part.group for part in shared.parts)
            rows.append(JournalRows(index, calls=calls, called=called, order=at, **runs))
            empty: dict[str, Any] = dict.fromkeys(_PARTS, ())
            ranks[index] = replace(rank, journal=replace(rank.journal, **empty))
    stripped = replace(job, ranks=tuple(ranks))
    found: dict[str, Any] = {part: tuple(table.rows) for part, table in tables.items()}
    found["calls"] = tuple(all_calls.rows)
    found |= {"code": tuple(code), "ran": tuple(ran)}
    return InternedJob(INTERNED_SCHEMA, stripped, orders=tuple(orders), journals=tuple(rows), **found)


class _Table:
    def __init__(self) -> None:
        self.rows: list[Any] = []
        self._row_of: dict[int, int] = {}
        """By identity: the job outlives the table."""
        self._known: dict[int, Runs] = {}

    def runs(self, values: Sequence[Any]) -> Runs:
        """Where the values are, those that are new at the end."""
        if id(values) not in self._known:
            self._known[id(values)] = tuple(_runs(map(self._row, values)))
        return self._known[id(values)]

    def _row(self, value: Any) -> int:
        row = self._row_of.setdefault(id(value), len(self.rows))
        if row == len(self.rows):
            self.rows.append(value)
        return row


class _CallTable:
    def __init__(self) -> None:
        self.rows: list[Call] = []
        self._row_of: dict[int, tuple[int, Call]] = {}
        """By identity, with the call that has it."""
        self._alike: dict[tuple[Any, ...], int] = {}
        self._known: dict[Rows, Runs] = {}

    def runs(self, calls: SharedCalls, number: int) -> Runs:
        """Where the calls of that group are, those that are new at the end."""
        rows = calls.parts[number].rows
        if rows not in self._known:
            self._known[rows] = tuple(_runs(map(self._row, rows.calls)))
        return self._known[rows]

    def _row(self, call: Call) -> int:
        known = self._row_of.get(id(call))
        if known is not None:
            return known[0]
        row = self._alike.setdefault(_all_but_group(call), len(self.rows))
        self._row_of[id(call)] = row, call
        if row == len(self.rows):
            self.rows.append(replace(call, group=""))
        return row


def _runs(rows: Iterable[int]) -> Iterable[tuple[int, int]]:
    first, count = -1, 0
    for row in rows:
        if row == first + count:
            count += 1
        else:
            if count:
                yield first, count
            first, count = row, 1
    if count:
        yield first, count


def restored(found: InternedJob) -> JobSnapshot:
    """The job with its journals again. Raises ``ValueError`` for rows that are not there, or too many."""
    tables = _Tables(found)
    told = 0  # of each rank, also where many share it: whoever reads the job goes through all of them
    ranks = list(found.job.ranks)
    for row in found.journals:
        journal = ranks[row.rank].journal if 0 <= row.rank < len(ranks) else None
        if journal is None:
            raise ValueError(f"journals: there is no journal of the rank with index {row.rank}")
        parts: dict[str, Any] = {part: tables.rows(part, getattr(row, part)) for part in _WHOLE}
        parts["calls"] = tables.calls(row)
        told += sum(map(len, parts.values()))
        if told > MOST_REFERENCES:
            raise ValueError(f"journals: they unfold to more than {MOST_REFERENCES:,} entries")
        ranks[row.rank] = replace(ranks[row.rank], journal=replace(journal, **parts))
    for each in found.ran:
        process = ranks[each.rank].process if 0 <= each.rank < len(ranks) else None
        if process is None:
            raise ValueError(f"ran: there is no process of the rank with index {each.rank}")
        rows = tables.rows("code", each.code)
        told += len(rows)
        if told > MOST_REFERENCES:
            raise ValueError(f"ran: they unfold to more than {MOST_REFERENCES:,} entries")
        ranks[each.rank] = replace(ranks[each.rank], process=replace(process, code=rows))
    return replace(found.job, ranks=tuple(ranks))


class _Tables:
    def __init__(self, found: InternedJob) -> None:
        self._found = found
        self._left = MOST_REFERENCES
        self._known: dict[Any, tuple[Any, ...]] = {}
        self._calls: dict[Any, SharedCalls] = {}
        self._rows: dict[Runs, Rows] = {}
        self._parts: dict[tuple[str, Runs], GroupCalls] = {}
        """One for all members of a group."""
        self._orders: dict[int, Order] = {}
        self._orders_of_one: dict[int, Order] = {}
        """Number of calls → their order, where they are of one group."""
        self._fit: set[tuple[int, tuple[int, ...]]] = set()

    def rows(self, part: str, runs: Runs) -> tuple[Any, ...]:
        """Those of the table ``part``."""
        if (part, runs) not in self._known:
            table: tuple[Any, ...] = getattr(self._found, part)
            for first, count in runs:
                if first < 0 or count < 1 or first + count > len(table):
                    raise ValueError(f"{part}: there is no row {first + count - 1}")
            self._take(sum(count for _, count in runs))
            self._known[part, runs] = tuple(value for first, count in runs for value in table[first : first + count])
        return self._known[part, runs]

    def calls(self, row: JournalRows) -> SharedCalls:
        """The calls of a journal, those of its groups in their order."""
        key = row.order, row.calls, row.called
        if key not in self._calls:
            parts = tuple(self._of_group(name, runs) for name, runs in zip(row.called, row.calls, strict=True))
            counts = tuple(len(part.rows) for part in parts)
            self._take(sum(counts))
            self._calls[key] = SharedCalls(parts, self._order(row, counts))
        return self._calls[key]

    def _order(self, row: JournalRows, counts: tuple[int, ...]) -> Order:
        """The order of so many calls of each group."""
        if row.order < 0:
            if len(counts) > 1:
                raise ValueError(f"orders: none for the calls of the rank with index {row.rank}")
            count = sum(counts)
            if count not in self._orders_of_one:
                self._take(count)
                self._orders_of_one[count] = Order((0,) * count)
            return self._orders_of_one[count]
        if row.order >= len(self._found.orders):
            raise ValueError(f"orders: there is no row {row.order}")
        if (row.order, counts) not in self._fit:
            if Counter(self._found.orders[row.order]) != dict(enumerate(counts)):
                raise ValueError(f"orders: row {row.order} does not fit the calls of the rank with index {row.rank}")
            self._fit.add((row.order, counts))
        if row.order not in self._orders:
            self._take(sum(counts))
            self._orders[row.order] = Order(self._found.orders[row.order])
        return self._orders[row.order]

    def _of_group(self, name: str, runs: Runs) -> GroupCalls:
        if runs not in self._rows:
            self._rows[runs] = Rows(self.rows("calls", runs))
        if (name, runs) not in self._parts:
            self._parts[name, runs] = GroupCalls(name, self._rows[runs])
        return self._parts[name, runs]

    def _take(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise ValueError(f"journals: they unfold to more than {MOST_REFERENCES:,} entries")


def size(job: JobSnapshot) -> int:
    """How many rows the journals of a job have and how many functions have run, told for each rank."""
    journals: Iterable[Journal] = (rank.journal for rank in job.ranks if rank.journal is not None)
    code = sum(len(rank.process.code) for rank in job.ranks if rank.process is not None)
    return code + sum(len(getattr(journal, part)) for journal in journals for part in _PARTS)
