"""A large job for a file: the calls, groups and stacks that its ranks have in common are written once.

``[a, b, c], [a, b, d]`` → the table ``[a, b, c, d]`` and its runs ``[(0, 3)], [(0, 2), (3, 1)]``. Only what is one
object in memory is one row: to compare millions of calls would take longer than to write them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hangdoc.model.journal import Call, Journal, PointToPoint, ProcessGroup
from hangdoc.model.process import Stack
from hangdoc.model.snapshot import JobSnapshot

INTERNED_SCHEMA = "hangdoc.snapshot/2"
MOST_REFERENCES = 24_000_000
"""Calls and the like of all ranks together that a file may unfold to, 8 bytes each: 4,096 ranks with 5,000 calls."""

Runs = tuple[tuple[int, int], ...]
"""(first row, how many) of a table, again and again."""


@dataclass(frozen=True, slots=True)
class JournalRows:
    """What a journal has in the tables."""

    rank: int
    """Index into ``JobSnapshot.ranks``."""
    groups: Runs
    calls: Runs
    point_to_points: Runs
    stacks: Runs


@dataclass(frozen=True, slots=True)
class InternedJob:
    """``job`` is without what the tables have."""

    schema: str
    job: JobSnapshot
    groups: tuple[ProcessGroup, ...]
    calls: tuple[Call, ...]
    point_to_points: tuple[PointToPoint, ...]
    stacks: tuple[Stack, ...]
    journals: tuple[JournalRows, ...]


_PARTS = ("groups", "calls", "point_to_points", "stacks")


def interned(job: JobSnapshot) -> InternedJob:
    """``job`` with its journals in tables."""
    tables = {part: _Table() for part in _PARTS}
    rows = []
    ranks = list(job.ranks)
    for index, rank in enumerate(job.ranks):
        if rank.journal is not None:
            runs = {part: table.runs(getattr(rank.journal, part)) for part, table in tables.items()}
            rows.append(JournalRows(index, **runs))
            empty: dict[str, Any] = dict.fromkeys(_PARTS, ())
            ranks[index] = replace(rank, journal=replace(rank.journal, **empty))
    stripped = replace(job, ranks=tuple(ranks))
    found: dict[str, Any] = {part: tuple(table.rows) for part, table in tables.items()}
    return InternedJob(INTERNED_SCHEMA, stripped, journals=tuple(rows), **found)


class _Table:
    def __init__(self) -> None:
        self.rows: list[Any] = []
        self._row_of: dict[int, int] = {}
        """By identity: the job outlives the table."""
        self._known: dict[int, Runs] = {}

    def runs(self, values: Sequence[Any]) -> Runs:
        """Where the values are, those that are new at the end."""
        if id(values) not in self._known:
            self._known[id(values)] = tuple(self._find(values))
        return self._known[id(values)]

    def _find(self, values: Sequence[Any]) -> Iterable[tuple[int, int]]:
        first, count = -1, 0
        for value in values:
            row = self._row_of.setdefault(id(value), len(self.rows))
            if row == len(self.rows):
                self.rows.append(value)
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
    left = MOST_REFERENCES
    known: dict[tuple[str, Runs], tuple[Any, ...]] = {}
    ranks = list(found.job.ranks)
    for row in found.journals:
        journal = ranks[row.rank].journal if 0 <= row.rank < len(ranks) else None
        if journal is None:
            raise ValueError(f"journals: there is no journal of the rank with index {row.rank}")
        parts: dict[str, Any] = {}
        for part in _PARTS:
            runs: Runs = getattr(row, part)
            if (part, runs) not in known:
                table: tuple[Any, ...] = getattr(found, part)
                for first, count in runs:
                    if first < 0 or count < 1 or first + count > len(table):
                        raise ValueError(f"{part}: there is no row {first + count - 1}")
                left -= sum(count for _, count in runs)
                if left < 0:
                    raise ValueError(f"journals: they unfold to more than {MOST_REFERENCES:,} entries")
                known[part, runs] = tuple(value for first, count in runs for value in table[first : first + count])
            parts[part] = known[part, runs]
        ranks[row.rank] = replace(ranks[row.rank], journal=replace(journal, **parts))
    return replace(found.job, ranks=tuple(ranks))


def size(job: JobSnapshot) -> int:
    """How many rows the journals of a job have, told for each rank."""
    journals: Iterable[Journal] = (rank.journal for rank in job.ranks if rank.journal is not None)
    return sum(len(getattr(journal, part)) for journal in journals for part in _PARTS)
