"""What is known of how a predicate came out on each rank, and whether that tells the sides apart.

Four sources, the strongest first: the probe's recorder of branches; the interpreters' counters, by the lines that run
under one outcome alone; the values in the ranks' frames; the rank itself, where the predicate compares it. What the
stacks imply is in ``reasons``: it depends on how the predicate was reached.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.execution.outcomes import Outcomes
from hangdoc.diagnosis.frames.names import pattern
from hangdoc.diagnosis.program.functions import Function
from hangdoc.diagnosis.program.items import Definition, Predicate
from hangdoc.diagnosis.program.program import Program
from hangdoc.diagnosis.reason.starts import CULPRITS, OTHERS, Sides
from hangdoc.diagnosis.source.evaluate import names_in, truth_of
from hangdoc.diagnosis.source.values import is_hidden, sides_differ


class Strength(IntEnum):
    """How well it is known that an item is not alike on the sides."""

    ALIKE = 0
    """Proved to be the same; never shown."""
    UNKNOWN = 1
    MAY = 2
    """One side alone is known to have gone this way, or what it tests differs."""
    PROVED = 3


SAME_EVERYWHERE = frozenset(
    (
        "range",
        "enumerate",
        "zip",
        "reversed",
        "len",
        "__name__",
        "dist.get_world_size",
        "get_world_size",
        "world_size",
        "world",
        "self.world",
        "self.world_size",
        "dist.is_initialized",
        "torch.distributed.get_world_size",
    )
)
"""Builtins that only go through what they are given, and names whose value is the same on all ranks of a job."""
OPPOSITE = {"True": "False", "False": "True", "round": "ended", "ended": "round", "raised": "ended"}
_RECORDED = {"True": "T", "False": "F", "round": "T", "ended": "F"}


@dataclass(frozen=True, slots=True)
class Seen:
    """Whether a predicate ever had an outcome, by rank, and who says so. A rank of which nothing is known is not in."""

    had: Mapping[int, bool]
    source: str

    def differs(self, sides: Sides) -> tuple[bool, bool] | None:
        """(had on all known culprits, had on all known others) where each side agrees in itself; else None."""
        found = []
        for side in (CULPRITS, OTHERS):
            known = {self.had[rank] for rank in sides[side] if rank in self.had}
            if len(known) != 1:
                return None
            found.append(known.pop())
        return found[0], found[1]


class Known:
    """What is known in one job."""

    def __init__(self, case: Case, program: Program, sides: Sides) -> None:
        self._case, self._program, self._sides = case, program, sides
        self._arms: dict[tuple[str, str, int], dict[tuple[Predicate, str], list[int]]] = {}

    def seen(self, predicate: Predicate, outcome: str) -> list[Seen]:
        """What each source says of an outcome, the strongest first."""
        found = [self._recorded(predicate, outcome), self._counted(predicate, outcome)]
        return [each for each in found if each is not None]

    def never_asked(self, predicate: Predicate, ranks: Iterable[int]) -> bool:
        """True if it is known of each of the ranks that it has never come to the predicate."""
        each = [self._case.ran.for_sure(rank, predicate.file, predicate.line) for rank in ranks]
        return bool(each) and all(came is False for came in each)

    def holds_by_rank(self, predicate: Predicate, outcome: str) -> bool:
        """True if the culprits have the outcome by their rank alone."""
        computed = self.computed(predicate)
        had = {computed.had.get(rank) for rank in self._sides.culprits} if computed is not None else set()
        return had == {outcome == "True"} and outcome in ("True", "False")

    def computed(self, predicate: Predicate) -> Seen | None:
        """Whether it is true by the rank alone, and by what else is seen of the names in it: of `rank == 0 and verbose`
        False on rank 1. Values that the program may have changed since are no proof."""
        texts = names_in(predicate.text)
        own = {name for name in texts if is_rank_name(name)}
        if not own:
            return None
        had = {}
        for rank in (*self._sides.culprits, *self._sides.others):
            values = {name: self._value(predicate, name, rank) or _rank_itself(name, rank) for name in own}
            true = truth_of(predicate.text, {name: value for name, value in values.items() if value})
            if true is not None:
                had[rank] = true
        return Seen(had, "rank") if had else None

    def by_values(self, predicate: Predicate) -> Seen | None:
        """Whether it is true with the values that the frames hold now."""
        values = {
            name: self._case.values.of(predicate.file, predicate.function, name) for name in names_in(predicate.text)
        }
        had = {}
        for rank in (*self._sides.culprits, *self._sides.others):
            mine = {name: per_rank[rank] for name, per_rank in values.items() if rank in per_rank}
            true = truth_of(predicate.text, mine)
            if true is not None:
                had[rank] = true
        return Seen(had, "values") if had else None

    def values_differ(self, item: Predicate | Definition) -> bool | None:
        """True if a name of it has other values on the other side, False if all names are seen and the same."""
        texts = names_in(item.subject) if isinstance(item, Predicate) else [item.name]
        both = (self._sides.culprits, self._sides.others)
        found = [sides_differ(self._case.values.of(item.file, item.function, name), both) for name in texts]
        if any(found):
            return True
        return False if found and all(each is False for each in found) else None

    def is_constant(self, predicate: Predicate) -> bool:
        """True for a test of what is written there, or is the same on all ranks by its nature: `range(3)`."""
        names = names_in(predicate.subject)
        return all(name.removesuffix("()") in SAME_EVERYWHERE for name in names)

    def _value(self, predicate: Predicate, name: str, rank: int) -> str:
        value = self._case.values.of(predicate.file, predicate.function, name).get(rank, "")
        return "" if is_hidden(value) else value

    @cached_property
    def _outcomes(self) -> Outcomes:
        ranks = (*self._sides.culprits, *self._sides.others)
        processes = {rank: self._case.ranks[rank].process for rank in ranks if rank in self._case.ranks}
        return Outcomes({rank: process for rank, process in processes.items() if process is not None})

    def _recorded(self, predicate: Predicate, outcome: str) -> Seen | None:
        value = _RECORDED.get(outcome)
        if value is None:
            return None
        place = (predicate.file, predicate.line, predicate.column, predicate.end_line, predicate.end_column)
        had = {}
        for rank in (*self._sides.culprits, *self._sides.others):
            found = self._outcomes.of(rank, place)
            if found is not None and found.counts.get(value):
                had[rank] = True
            elif found is not None and found.never(value):
                had[rank] = False
        return Seen(had, "recorder") if had else None

    def _counted(self, predicate: Predicate, outcome: str) -> Seen | None:
        ran = self._case.ran
        lines = self.arm(predicate, outcome) if ran else []
        had = {}
        for rank in (*self._sides.culprits, *self._sides.others) if lines else ():
            each = [ran.for_sure(rank, predicate.file, line) for line in lines]
            if True in each:
                had[rank] = True
            elif each and all(one is False for one in each):
                had[rank] = False
        return Seen(had, "counters") if had else None

    def arm(self, predicate: Predicate, outcome: str) -> list[int]:
        """The lines that run only if the predicate has the outcome: control-dependent on nothing else."""
        function = self._program.function(predicate.file, predicate.line)
        if function is None:
            return []
        return self._arms_of(function).get((predicate, outcome), [])

    def _arms_of(self, function: Function) -> dict[tuple[Predicate, str], list[int]]:
        key = function.file, function.name, function.line
        if key not in self._arms:
            found: dict[tuple[Predicate, str], list[int]] = {}
            for line in range(function.line, function.end_line + 1):
                controls = function.controls(line)
                if len(controls) == 1 and controls[0][0].line != line:
                    found.setdefault(controls[0], []).append(line)
            self._arms[key] = found
        return self._arms[key]


def is_rank_name(name: str) -> bool:
    """True if programs use such a name for a rank, or for a flag made of it: 'local_rank', 'is_main'."""
    return any(pattern(kind).search(name) for kind in ("rank_word", "rank_flag"))


def _rank_itself(name: str, rank: int) -> str:
    """The rank, for a name that says no more than that it is one."""
    return (
        str(rank) if name.rpartition(".")[2].removesuffix("()") in ("rank", "get_rank", "global_rank", "RANK") else ""
    )


def agreeing(seen: Iterable[Seen], sides: Sides, side: int) -> tuple[Strength, str] | None:
    """What the sources say of an outcome that led one side on: (strength, who says so), None where nothing does."""
    for each in seen:
        both = each.differs(sides)
        if both is None:
            continue
        mine, theirs = both[side], both[1 - side]
        if mine and not theirs:
            return Strength.PROVED, each.source
        if not mine and not theirs:
            return Strength.ALIKE, each.source
    return None
