"""What is known of how a predicate came out on each rank, and whether that tells the sides apart.

Four sources, the strongest first: the probe's recorder of branches; the interpreters' counters, by the lines that run
under one outcome alone; the values in the ranks' frames; the rank itself, where the predicate compares it. What the
stacks imply is in ``reasons``: it depends on how the predicate was reached.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.names import is_rank_name
from hangdoc.diagnosis.program.items import Definition, Predicate
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
_PAIRS = {"for": ("round", "ended"), "except": ("raised", "ended"), "with": ("raised", "ended")}
"""How predicates of that kind come out; 'True' and 'False' of all others."""


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

    def __init__(self, case: Case, sides: Sides) -> None:
        self._case, self._sides = case, sides
        self.table = case.table

    def decides(self, predicate: Predicate, side: int, outcome: str) -> tuple[Strength, str] | None:
        """What the table says of a predicate that has led the side to the start by its outcome, '' where either may
        have: (strength, who says so), None where it says nothing."""
        pair = _PAIRS.get(predicate.kind, ("True", "False"))
        for each in self.table.differs(predicate, pair, self._sides.culprits, self._sides.others):
            if each.outcome == "ended" and pair[0] == "round":
                continue  # whoever waits in a loop has not ended it
            if not outcome or (each.side == side) == (each.outcome == outcome):
                return Strength.PROVED, each.source
        if outcome and all(self.table.all_had(predicate, outcome, ranks) is False for ranks in self._sides):
            return Strength.ALIKE, "counters"
        other = {"True": "False", "False": "True"}.get(outcome)
        if other is not None and all(self._has_always_had(predicate, outcome, other, side) for side in self._sides):
            return Strength.ALIKE, "counters"
        return None

    def _has_always_had(self, predicate: Predicate, outcome: str, other: str, ranks: Iterable[int]) -> bool:
        """True if all of the ranks came to it, and it has come out so on each, and never otherwise."""
        had = [[self.table.had(predicate, each, rank)[0] for each in (outcome, other)] for rank in ranks]
        return bool(had) and all(each == [True, False] for each in had)

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
        ranks = (*self._sides.culprits, *self._sides.others)
        truths = self._case.values.truths(predicate.file, predicate.function, predicate.text, ranks)
        had = {rank: true for rank, true in truths.items() if true is not None}
        return Seen(had, "values") if had else None

    def values_differ(self, item: Predicate | Definition) -> bool | None:
        """True if a name of it has other values on the other side, False if all names are seen and the same."""
        texts = names_in(item.subject) if isinstance(item, Predicate) else [item.name]
        both = self._sides.culprits, self._sides.others
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


def _rank_itself(name: str, rank: int) -> str:
    """The rank, for a name that says no more than that it is one."""
    return (
        str(rank) if name.rpartition(".")[2].removesuffix("()") in ("rank", "get_rank", "global_rank", "RANK") else ""
    )
