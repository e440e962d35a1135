"""The one table of what each rank did: predicate × rank → which outcomes it had, and which it never had.

Example: of `if not isfinite(loss):` at 45 with `self.bad += 1` at 46, rank 2 has run line 46 and no other rank has →
'True' was had on rank 2 and never on the others, "counters".

Sources, all asked: the recorder of branches of the probe; the lines that the interpreters' counters show to have
run, or not, under one outcome alone; the interpreters' last outcomes of a test; the stacks of now. Where two of them
contradict each other the entry is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from hangdoc.diagnosis.execution.lines import Lines
from hangdoc.diagnosis.execution.outcomes import COUNTERS, RECORDER, Outcomes
from hangdoc.diagnosis.program.functions import Function
from hangdoc.diagnosis.program.items import Predicate
from hangdoc.diagnosis.program.program import Program
from hangdoc.diagnosis.source.guards import Guard
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.model.process import Process, Stack

STACKS = "stacks"
_RECORDED = {"True": "T", "False": "F", "round": "T", "ended": "F"}
_KINDS = {"if": ("if",), "return": ("if",), "loop": ("while", "for"), "try": ("except",), "match": ("match",)}
"""Kind of a guard → kinds of its predicate."""
_WAYS = {"for": ("round", "ended"), "except": ("raised", "ended")}
_Taken = tuple[Predicate, str]
"""A predicate with one of its outcomes."""


class Difference(NamedTuple):
    """All that are known of ``side`` (0: mine, 1: theirs) had the outcome, and nobody on the other side ever had it."""

    side: int
    outcome: str
    source: str


class Choice(NamedTuple):
    """The predicates of a guard, of which one is enough, with their outcomes under the guard and past it.

    Past a loop no outcome tells: whoever is in it will end it.
    """

    predicates: tuple[Predicate, ...]
    under: str
    past: str


class Table(Lines):
    """Of one job; each entry is computed when it is asked for."""

    def __init__(
        self, sources: Sources, program: Program, processes: Mapping[int, Process], stacks: Mapping[int, Stack]
    ) -> None:
        super().__init__(sources, processes, stacks)
        self.outcomes = Outcomes(processes)
        self._program, self._now = program, stacks
        self._arms: dict[tuple[str, str, int], dict[_Taken, list[int]]] = {}
        self._known: dict[tuple[Predicate, str, int, bool], tuple[bool | None, str]] = {}
        self._stacks: dict[int, frozenset[_Taken]] = {}

    def never_asked(self, predicate: Predicate, ranks: Iterable[int]) -> bool:
        """True if it is known of each of the ranks that it has never come to the predicate."""
        came = self.split(ranks, predicate.file, predicate.line)
        return bool(came.never) and not came.ran and not came.unknown

    def had(self, predicate: Predicate, outcome: str, rank: int, *, lately: bool = False) -> tuple[bool | None, str]:
        """(whether the rank ever had the outcome, who says so); (None, '') where nothing tells, or sources disagree.
        ``lately``: what did not run since the function became warm is taken for what never ran."""
        key = predicate, outcome, rank, lately
        if key not in self._known:
            told = list(self._told(predicate, outcome, rank, self.lately if lately else self.ran))
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

    def choice(self, file: str, guard: Guard) -> Choice | None:
        """What a guard asks; None where it is a part of a line, or the code around it was not captured."""
        function = self._program.function(file, guard.line)
        kinds = _KINDS.get(guard.kind, ())
        found = [each for each in function.predicates if each.kind in kinds] if function is not None else []
        if guard.is_tried:  # the handlers of what is tried further in stand further in
            inside = [each for each in found if guard.holds(each.line)]
            found = [each for each in inside if each.column == min(other.column for other in inside)]
        else:
            found = [each for each in found if each.line == guard.line][:1]
        if not found:
            return None
        ways = _WAYS.get(found[0].kind, ("True", "False"))
        under, past = ways if guard.taken != guard.is_tried else ways[::-1]
        return Choice(tuple(found), under, past if guard.kind != "loop" else "")

    def _told(
        self, predicate: Predicate, outcome: str, rank: int, ran: Callable[[int, str, int], bool | None]
    ) -> Iterator[tuple[bool, str]]:
        value = _RECORDED.get(outcome)
        place = (predicate.file, predicate.line, predicate.column, predicate.end_line, predicate.end_column)
        found = self.outcomes.of(rank, place) if value is not None else None
        if found is not None and value is not None and found.counts.get(value):
            yield True, found.source
        elif found is not None and value is not None and found.never(value):
            yield False, RECORDER
        came = [ran(rank, predicate.file, line) for line in self.arm(predicate, outcome)]
        if True in came:
            yield True, COUNTERS
        elif False in came:  # what stands before it in the arm and has no counter raises nothing
            yield False, COUNTERS
        if (predicate, outcome) in self._on_stacks(rank):
            yield True, STACKS

    def arm(self, predicate: Predicate, outcome: str) -> list[int]:
        """The lines that run if the predicate has the outcome, and that nothing else leads to."""
        function = self._program.function(predicate.file, predicate.line)
        return self._arms_of(function).get((predicate, outcome), []) if function is not None else []

    def _arms_of(self, function: Function) -> dict[_Taken, list[int]]:
        key = function.file, function.name, function.line
        if key not in self._arms:
            found: dict[_Taken, list[int]] = {}
            for line in range(function.line, function.end_line + 1):
                passed = function.passed(line)
                for taken in passed and function.controls(line, ending=True):
                    if taken in passed:
                        found.setdefault(taken, []).append(line)
            self._arms[key] = found
        return self._arms[key]

    def _on_stacks(self, rank: int) -> frozenset[_Taken]:
        if rank not in self._stacks:
            found = ((self._program.function(f.file, f.line), f.line) for f in self._now.get(rank, ()))
            self._stacks[rank] = frozenset(t for inner, line in found if inner is not None for t in inner.passed(line))
        return self._stacks[rank]
