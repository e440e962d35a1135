"""The reasons, ranked: of all that decided whether each side came to where it is, what was not alike on both.

A slice of one run tells what may have decided (Weiser 1981); where several runs of one program are at hand, what their
slices do not share decided (differential slicing: Johnson et al., IEEE S&P 2011; dual slicing: Weeratunge et al., ISSTA
2010). The ranks of a job are such runs. How often a line has run under fault and without is the spectrum that Ochiai's
coefficient weighs (Abreu et al. 2007); of two sides that each agree in themselves it is one or nothing, which is what
``Strength`` says.

Example: rank 2 waits in barrier at 61 and ranks 0 and 1 in all_reduce at 44, which is under `if len(rows) > 0:` →
that predicate, 'False' on rank 2, 'True' on ranks 0 and 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.library import is_library
from hangdoc.diagnosis.program.items import Definition, Predicate, Reached
from hangdoc.diagnosis.program.program import Program
from hangdoc.diagnosis.reason.known import OPPOSITE, Known, Strength, agreeing
from hangdoc.diagnosis.reason.starts import CULPRITS, OTHERS, Sides, Start
from hangdoc.model.process import Frame

MOST_ITEMS = 400
"""Items of one slice that are looked at: the nearest."""
Item = Predicate | Definition


@dataclass(frozen=True, slots=True)
class Arrival:
    """One way on which a slice came to an item."""

    start: Start
    reached: Reached

    @property
    def is_direct(self) -> bool:
        """True if control alone leads from this outcome to the start, which would not have been come to without it."""
        return self.reached.why in ("controls", "calls") and all(
            isinstance(each, Predicate) for each in self.reached.path
        )


@dataclass(frozen=True, slots=True)
class Reason:
    """Something that is not alike on both sides.

    ``outcomes``: how it came out on the culprits and on the others, '' where that is not known. ``path``: what it
    decided, from the item to the line where the slice began. ``source``: what says that it differs.
    """

    item: Item
    outcomes: tuple[str, str]
    strength: Strength
    distance: float
    path: tuple[Item, ...]
    source: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    """``slice``: all that was come to, the nearest first. ``reasons``: what may have parted the sides, the likeliest
    first."""

    slice: tuple[Item, ...]
    reasons: tuple[Reason, ...]


def reasons(case: Case, sides: Sides, starts: Sequence[Start]) -> Found:
    """What parted the sides, by the slices from ``starts``."""
    program = Program.of(case.job)
    arrivals = _arrivals(program, starts)
    known = Known(case, program, sides)
    every = [_judged(known, sides, item, each) for item, each in arrivals.items()]
    listed = [each for each in every if each.strength > Strength.ALIKE]
    nearest = sorted(every, key=lambda each: each.distance)
    return Found(tuple(each.item for each in nearest), tuple(sorted(listed, key=_order)))


def _arrivals(program: Program, starts: Iterable[Start]) -> dict[Item, list[Arrival]]:
    found: dict[Item, list[Arrival]] = {}
    for start in starts:
        (file, line), *callers = start.lines
        for reached in islice(program.slice_back(file, line, stack=[(file, line), *callers]), MOST_ITEMS):
            found.setdefault(reached.item, []).append(Arrival(start, reached))
    return found


def _judged(known: Known, sides: Sides, item: Item, arrivals: list[Arrival]) -> Reason:
    """The item with what is known of it; of several ways to it the nearest."""
    nearest = min(arrivals, key=lambda each: each.reached.distance)
    distance, path = nearest.reached.distance, nearest.reached.path
    if isinstance(item, Definition):
        differ = known.values_differ(item)
        strength = Strength.MAY if differ else Strength.UNKNOWN
        return Reason(item, ("", ""), strength, distance, path, "values" if differ else "")
    outcomes = _by_stacks(arrivals)
    if outcomes[0] and outcomes[1] and outcomes[0] != outcomes[1]:
        return Reason(item, outcomes, Strength.PROVED, distance, path, "stacks")
    side, outcome = nearest.start.side, nearest.reached.outcome
    told = agreeing(known.seen(item, outcome), sides, side) if outcome else None
    if told is None and outcome in OPPOSITE:
        told = agreeing(known.seen(item, OPPOSITE[outcome]), sides, 1 - side)
    if told is None:
        told = _of_values(known, sides, item)
    strength, source = told if told is not None else (Strength.MAY if any(outcomes) else Strength.UNKNOWN, "")
    return Reason(item, outcomes, strength, distance, path, source)


def _of_values(known: Known, sides: Sides, item: Predicate) -> tuple[Strength, str] | None:
    for seen in (known.computed(item), known.by_values(item)):
        both = seen.differs(sides) if seen is not None else None
        if seen is not None and both is not None:
            if both[0] != both[1]:
                return Strength.PROVED, seen.source
            if seen.source == "rank":
                return Strength.ALIKE, seen.source
    if known.values_differ(item) or known.names_rank(item):
        return Strength.MAY, "values"
    return None


def _by_stacks(arrivals: Iterable[Arrival]) -> tuple[str, str]:
    """(outcome on the culprits, on the others) as the stacks imply it; '' of a side that need not have come by."""
    found: list[set[str]] = [set(), set()]
    for each in arrivals:
        if each.is_direct:
            found[each.start.side].add(each.reached.outcome)
    return (_one(found[CULPRITS]), _one(found[OTHERS]))


def _one(outcomes: set[str]) -> str:
    return next(iter(outcomes)) if len(outcomes) == 1 else ""


def _order(reason: Reason) -> tuple[bool, int, bool, float]:
    library = is_library(Frame(reason.item.file, reason.item.line, reason.item.function))
    return library, -reason.strength, isinstance(reason.item, Definition), reason.distance
