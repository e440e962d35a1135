"""The tests of the program, one jump each: how they came out on each rank, and who says so.

Example: of `if loss > limit:` at 41, the probe has recorded 'T' once on rank 1, at last, and 'F' 411 times; on rank 0
the interpreter's counters tell the last sixteen, all 'F'.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hangdoc.model.branches import BranchCounts
from hangdoc.model.process import Process
from hangdoc.model.ran import Tested

Place = tuple[str, int, int, int, int]
"""File, line, column, last line, end column."""

RECORDER, COUNTERS = "recorder", "counters"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one test came out on one rank."""

    source: str
    """``RECORDER`` or ``COUNTERS``."""
    counts: Mapping[str, int]
    """How often it had each value: 'T' and 'F', or 'N' and 'V'."""
    last: str
    """Its last values, the newest last."""
    whole: bool
    """``counts`` has every value that it ever had; else it may have had any other before."""

    @property
    def times(self) -> int:
        """How often it was asked."""
        return sum(self.counts.values())

    def never(self, value: str) -> bool:
        """True if it is certain that it has never had that value."""
        return self.whole and not self.counts.get(value)


class Outcomes:
    """Of a job; each rank is read when it is first asked for. What two jumps of one expression tell together (a `while`
    has one at both ends) is in no order."""

    def __init__(self, processes: Mapping[int, Process]) -> None:
        self._processes = processes
        self._ranks: dict[int, dict[Place, Outcome]] = {}

    def of(self, rank: int, place: Place) -> Outcome | None:
        """How a test came out on a rank; None where nothing is known of it."""
        return self._of_rank(rank).get(place)

    def recorded(self) -> dict[int, Process]:
        """The ranks whose branches were recorded."""
        return {rank: process for rank, process in self._processes.items() if process.branches}

    def _of_rank(self, rank: int) -> dict[Place, Outcome]:
        if rank not in self._ranks:
            table = self._ranks[rank] = {}
            process = self._processes.get(rank)
            for code in process.code if process is not None else ():
                for tested in code.tests:
                    _add(table, place_of(code.file, tested), _counted(tested))
            for branch in process.branches if process is not None else ():
                if branch.is_sound:
                    _add(table, place_of(branch.file, branch), _recorded(branch))
        return self._ranks[rank]

    def common(self, ranks: Iterable[int]) -> set[Place]:
        """The tests of which something is known of every one of the ranks."""
        per_rank = [set(self._of_rank(rank)) for rank in ranks]
        return set.intersection(*per_rank) if per_rank else set()

    def is_alike(self, ranks: Iterable[int], place: Place) -> bool:
        """True if the test has only ever had one value, the same on all of the ranks."""
        found = [self.of(rank, place) for rank in ranks]
        had = {value for each in found if each is not None for value, count in each.counts.items() if count}
        return len(had) == 1 and all(each is not None and each.whole for each in found)

    def on_line(self, ranks: Iterable[int], file: str, line: int) -> list[Place]:
        """Those of them that begin on a line, in their order."""
        return sorted(place for place in self.common(ranks) if place[:2] == (file, line))


def who_counts(processes: Iterable[Process], file: str) -> str:
    """Whose word it is which lines of a file have run."""
    recorded = any(branch.file == file for process in processes for branch in process.branches)
    return "as the probe recorded" if recorded else "by the interpreter's counters"


def place_of(file: str, at: BranchCounts | Tested) -> Place:
    """Where a test of the file is."""
    return file, at.line, at.column, at.end_line, at.end_column


def _counted(tested: Tested) -> Outcome:
    counts = {value: tested.outcomes.count(value) for value in dict.fromkeys(tested.outcomes)}
    return Outcome(COUNTERS, counts, tested.outcomes, whole=False)


def _recorded(branch: BranchCounts) -> Outcome:
    return Outcome(RECORDER, dict(zip(branch.values, branch.counts, strict=True)), branch.last, branch.whole)


def _add(table: dict[Place, Outcome], place: Place, found: Outcome) -> None:
    known = table.get(place)
    if known is None or known.source != found.source:  # the recorder's come last, and have more
        table[place] = found
        return
    counts = {
        value: known.counts.get(value, 0) + found.counts.get(value, 0) for value in {**known.counts, **found.counts}
    }
    table[place] = Outcome(found.source, counts, "", known.whole and found.whole)
