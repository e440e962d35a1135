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
from dataclasses import dataclass, replace
from itertools import islice

from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.program.items import Definition, Predicate, Reached
from hangdoc.diagnosis.program.program import Program
from hangdoc.diagnosis.reason.known import OPPOSITE, Known, Strength, agreeing
from hangdoc.diagnosis.reason.provisions import is_library_file
from hangdoc.diagnosis.reason.relays import LOOPS, sources_of
from hangdoc.diagnosis.reason.starts import CULPRITS, OTHERS, Kind, Parted, Sides, Start, starts_of

MOST_ITEMS = 400
"""Items of one slice that are looked at: the nearest."""
MOST_OF_PLACE = 40
"""The same of a place that may be one of many."""
MISSED = (Kind.TOUCHING, Kind.MISSED, Kind.RAISED, Kind.OUTSIDE)
Item = Predicate | Definition
OFFSET = {
    **{Kind.CALLED: 0.0, Kind.FORK: 0.0, Kind.WITHIN: 0.0, Kind.TOUCHING: 0.5, Kind.MISSED: 1.5},
    **{Kind.NOW: 2.0, Kind.THREAD: 4.0, Kind.RAISED: 0.5, Kind.OUTSIDE: 6.0},
}
"""What a slice begins with by its start, in steps of control dependence."""
LEVEL = 1.0
"""What each call below the function in which both sides were adds."""
LOOP, VALUE = 5.0, 8.0
"""What is added to a loop, as most loops go alike on all ranks, and to a definition, which tells no way."""
GAIN = {"recorder": 3.0, "counters": 3.0, "stacks": 2.0}
"""What a proof takes off, by its source. The rank and the values of now prove that an outcome differs, and most such
tests are there by design: they take nothing off.

All of these are judgement, rounded, by those of the reviewed cases whose half is "tuned" (see
tests/accuracy/reasons.py)."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """One way on which a slice came to an item."""

    start: Start
    reached: Reached

    @property
    def distance(self) -> float:
        """From where the sides left each other."""
        return OFFSET[self.start.kind] + LEVEL * self.start.level + self.reached.distance

    @property
    def is_direct(self) -> bool:
        """True if control alone leads from this outcome to the start, which would not have been come to without it."""
        if self.start.kind == Kind.OUTSIDE:
            return False  # all tests of such a function are listed, whether they decide or not
        return self.reached.relation in ("controls", "calls") and all(
            isinstance(e, Predicate) for e in self.reached.path
        )


@dataclass(frozen=True, slots=True)
class Reason:
    """Something that is not alike on both sides.

    ``outcomes``: how it came out on the culprits and on the others, '' where that is not known. ``path``: what it
    decided, from the line where the slice began outwards. ``source``: what says that it differs. ``direct``: it decides
    by itself whether that line is come to, or sets what does.
    """

    item: Item
    outcomes: tuple[str, str]
    strength: Strength
    distance: float
    path: tuple[Item, ...]
    source: str = ""
    direct: bool = False
    start: Kind = Kind.NOW


@dataclass(frozen=True, slots=True)
class Found:
    """``slice``: all that was come to, the nearest first. ``reasons``: what may have parted the sides, the likeliest
    first."""

    slice: tuple[Item, ...]
    reasons: tuple[Reason, ...]


def reasons(case: Case, sides: Sides, parted: Sequence[Parted] = ()) -> Found:
    """What parted the sides. ``parted``: the calls at which their histories diverge, where they do."""
    program = Program.of(case.job)
    starts = starts_of(case, program, sides, parted)
    arrivals = _arrivals(program, starts)
    known = Known(case, program, sides)
    every = {item: _judged(known, sides, item, each) for item, each in arrivals.items()}
    nearest = sorted(every.values(), key=lambda each: each.distance)
    listed = [each for each in _with_sources(every) if each.strength > Strength.ALIKE]
    return Found(tuple(each.item for each in nearest), tuple(sorted(listed, key=_order)))


def _arrivals(program: Program, starts: Iterable[Start]) -> dict[Item, list[Arrival]]:
    found: dict[Item, list[Arrival]] = {}
    for start in starts:
        file, line = start.lines[0]
        stack = start.lines if start.kind not in MISSED else ()
        most = MOST_ITEMS if start.kind not in MISSED else MOST_OF_PLACE
        if start.kind == Kind.OUTSIDE:
            function = program.function(file, line)
            for item in function.predicates if function is not None else ():
                found.setdefault(item, []).append(Arrival(start, Reached(item, "", 1.0)))
            continue
        for reached in islice(program.slice_back(file, line, stack=stack), most):
            found.setdefault(reached.item, []).append(Arrival(start, reached))
    return found


def _with_sources(every: dict[Item, Reason]) -> list[Reason]:
    """The reasons; what sets a flag, or fills what is gone through, stands just before the test of it."""
    found = dict(every)
    for reason in sorted(every.values(), key=lambda each: each.distance):
        relayed = sources_of(reason.item, every) if found[reason.item].direct else []
        for item in relayed:
            own = found[item]
            if own.strength == Strength.ALIKE or own.direct:
                continue
            strength = max(own.strength, found[reason.item].strength)
            nearer = found[reason.item].distance - 0.25
            found[item] = replace(own, strength=strength, distance=nearer, direct=True)
    return list(found.values())


def _judged(known: Known, sides: Sides, item: Item, arrivals: list[Arrival]) -> Reason:
    """The item with what is known of it; of several ways to it the nearest."""
    nearest = min(arrivals, key=lambda each: each.distance)
    distance, path = nearest.distance, nearest.reached.path
    if isinstance(item, Definition):
        differ = known.values_differ(item)
        strength = Strength.MAY if differ else Strength.UNKNOWN
        return Reason(item, ("", ""), strength, distance, path, "values" if differ else "", start=nearest.start.kind)
    outcomes = _by_stacks(arrivals)
    direct = any(each.is_direct for each in arrivals)
    strength, source = _strength(known, sides, item, nearest, outcomes, arrivals)
    return Reason(item, outcomes, strength, distance, path, source, direct, nearest.start.kind)


def _strength(
    known: Known, sides: Sides, item: Predicate, nearest: Arrival, outcomes: tuple[str, str], arrivals: list[Arrival]
) -> tuple[Strength, str]:
    side, outcome = nearest.start.side, nearest.reached.outcome
    if nearest.start.kind == Kind.RAISED:
        side = CULPRITS
    elif nearest.start.kind in MISSED:  # the culprits were to have it, and did not
        side = OTHERS
        if outcome and known.holds_by_rank(item, outcome):
            return Strength.ALIKE, "rank"  # it is their part, and they play it
    elif known.never_asked(item, sides[1 - side]):
        return Strength.ALIKE, "counters"  # a predicate before it kept them away
    told = agreeing(known.seen(item, outcome), sides, side) if outcome else None
    if told is None and outcome in OPPOSITE:
        told = agreeing(known.seen(item, OPPOSITE[outcome]), sides, 1 - side)
    if told is not None:
        return told
    if known.is_constant(item):
        return Strength.ALIKE, "constant"
    shared = any((item.file, plain(item.function)) in each.start.common for each in arrivals)
    if outcomes[0] and outcomes[1] and shared:
        return (Strength.ALIKE if outcomes[0] == outcomes[1] else Strength.PROVED), "stacks"
    told = _of_values(known, sides, item)
    return told if told is not None else (Strength.MAY if any(outcomes) else Strength.UNKNOWN, "")


def _of_values(known: Known, sides: Sides, item: Predicate) -> tuple[Strength, str] | None:
    for seen in (known.computed(item), known.by_values(item)):
        both = seen.differs(sides) if seen is not None else None
        if seen is not None and both is not None:
            if both[0] != both[1]:
                return Strength.PROVED, seen.source
            if seen.source == "rank":
                return Strength.ALIKE, seen.source
    if known.values_differ(item):
        return Strength.MAY, "values"
    return None


def _by_stacks(arrivals: Iterable[Arrival]) -> tuple[str, str]:
    """(outcome on the culprits, on the others) as the stacks imply it; '' of a side that need not have come by."""
    direct = [each for each in arrivals if each.is_direct and each.start.kind not in (*MISSED, Kind.THREAD)]
    first = [each for each in direct if each.start.kind in (Kind.CALLED, Kind.FORK)]
    found: list[set[str]] = [set(), set()]
    for each in first or direct:
        found[each.start.side].add(each.reached.outcome)
    return (_one(found[CULPRITS]), _one(found[OTHERS]))


def _one(outcomes: set[str]) -> str:
    return next(iter(outcomes)) if len(outcomes) == 1 else ""


def _order(reason: Reason) -> tuple[bool, float]:
    """The user's own first, then by distance; with what else is known put in steps of control dependence."""
    cost = reason.distance
    if isinstance(reason.item, Definition):
        cost += VALUE
    elif reason.item.kind in LOOPS:
        cost += LOOP
    if reason.strength == Strength.PROVED:
        cost -= GAIN.get(reason.source, 0.0)
    return is_library_file(reason.item.file), cost
