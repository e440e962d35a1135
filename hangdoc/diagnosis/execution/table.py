"""The one table of what each rank did: predicate × rank → which outcomes it had, and which it never had.

Example: of `if not isfinite(loss):` at 45 with `self.bad += 1` at 46, rank 2 has run line 46 and no other rank has →
'True' was had on rank 2 and never on the others, "counters".

Sources, all asked: the recorder of branches of the probe; the lines that the interpreters' counters show to have
run, or not, under one outcome alone; the interpreters' last outcomes of a test; the stacks of now. Where two of them
contradict each other the entry is unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from hangdoc.diagnosis.execution.lines import Lines
from hangdoc.diagnosis.execution.outcomes import COUNTERS, RECORDER, Outcomes
from hangdoc.diagnosis.program.functions import Function
from hangdoc.diagnosis.program.items import Predicate
from hangdoc.diagnosis.program.program import Program
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.model.process import Process, Stack

STACKS = "stacks"
_RECORDED = {"True": "T", "False": "F", "round": "T", "ended": "F"}
_Taken = tuple[Predicate, str]
"""A predicate with one of its outcomes."""


class Difference(NamedTuple):
    """All that are known of ``side`` (0: mine, 1: theirs) had the outcome, and nobody on the other side ever had it."""

    side: int
    outcome: str
    source: str


class Table(Lines):
    """Of one job; each entry is computed when it is asked for."""

    def __init__(
        self, sources: Sources, program: Program, processes: Mapping[int, Process], stacks: Mapping[int, Stack]
    ) -> None:
        super().__init__(sources, processes, stacks)
        self.outcomes = Outcomes(processes)
        self._program, self._now = program, stacks
        self._arms: dict[tuple[str, str, int], dict[_Taken, list[int]]] = {}
        self._known: dict[tuple[Predicate, str, int], tuple[bool | None, str]] = {}
        self._stacks: dict[int, frozenset[_Taken]] = {}

    def never_asked(self, predicate: Predicate, ranks: Iterable[int]) -> bool:
        """True if it is known of each of the ranks that it has never come to the predicate."""
        came = self.split(ranks, predicate.file, predicate.line)
        return bool(came.never) and not came.ran and not came.unknown

    def had(self, predicate: Predicate, outcome: str, rank: int) -> tuple[bool | None, str]:
        """(whether the rank ever had the outcome, who says so); (None, '') where nothing tells, or sources disagree."""
        key = predicate, outcome, rank
        if key not in self._known:
            told = list(self._told(predicate, outcome, rank))
            agree = len({each for each, _ in told}) == 1
            self._known[key] = told[0] if agree else (None, "")
        return self._known[key]

    def differs(
        self, predicate: Predicate, outcomes: Iterable[str], mine: Iterable[int], theirs: Iterable[int]
    ) -> list[Difference]:
        """Which of the outcomes one side alone had, as far as each side agrees in itself."""
        found = []
        for outcome in outcomes:
            both = [[self.had(predicate, outcome, rank) for rank in side] for side in (mine, theirs)]
            sets = [{had for had, _ in side if had is not None} for side in both]
            if [len(each) for each in sets] == [1, 1] and sets[0] != sets[1]:
                side = 0 if True in sets[0] else 1
                source = next(source for had, source in both[side] if had is not None)
                found.append(Difference(side, outcome, source))
        return found

    def all_had(self, predicate: Predicate, outcome: str, ranks: Iterable[int]) -> bool | None:
        """True if all of the ranks that are known of had it, False if none had; else None."""
        known = {had for rank in ranks if (had := self.had(predicate, outcome, rank)[0]) is not None}
        return known.pop() if len(known) == 1 else None

    def _told(self, predicate: Predicate, outcome: str, rank: int) -> Iterator[tuple[bool, str]]:
        value = _RECORDED.get(outcome)
        place = (predicate.file, predicate.line, predicate.column, predicate.end_line, predicate.end_column)
        found = self.outcomes.of(rank, place) if value is not None else None
        if found is not None and value is not None and found.counts.get(value):
            yield True, found.source
        elif found is not None and value is not None and found.never(value):
            yield False, RECORDER
        came = [self.ran(rank, predicate.file, line) for line in self.arm(predicate, outcome)]
        if True in came:
            yield True, COUNTERS
        elif False in came:  # what stands before it in the arm and has no counter raises nothing
            yield False, COUNTERS
        if (predicate, outcome) in self._on_stacks(rank):
            yield True, STACKS

    def arm(self, predicate: Predicate, outcome: str) -> list[int]:
        """The lines that run only if the predicate has the outcome: control-dependent on nothing else."""
        function = self._program.function(predicate.file, predicate.line)
        return self._arms_of(function).get((predicate, outcome), []) if function is not None else []

    def _arms_of(self, function: Function) -> dict[_Taken, list[int]]:
        key = function.file, function.name, function.line
        if key not in self._arms:
            found: dict[_Taken, list[int]] = {}
            for line in range(function.line, function.end_line + 1):
                controls = function.controls(line)
                if len(controls) == 1 and controls[0][0].line != line:
                    found.setdefault(controls[0], []).append(line)
            self._arms[key] = found
        return self._arms[key]

    def _on_stacks(self, rank: int) -> frozenset[_Taken]:
        if rank not in self._stacks:
            self._stacks[rank] = frozenset(self._led_to(self._now.get(rank, ())))
        return self._stacks[rank]

    def _led_to(self, stack: Stack) -> Iterator[_Taken]:
        """All that the frames are control-dependent on, where each line depends on one predicate."""
        for frame in stack:
            function = self._program.function(frame.file, frame.line)
            line, seen = frame.line, set[int]()
            while function is not None and line not in seen:
                seen.add(line)
                controls = function.controls(line)
                if len(controls) != 1:
                    break
                yield controls[0]
                line = controls[0][0].line
