"""One item of the slices with all that is known of it: how it came out on each side, and what says so."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hangdoc.diagnosis.bounds import LISTED
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.program.items import Definition, Predicate, Reached
from hangdoc.diagnosis.reason.known import Known, Strength
from hangdoc.diagnosis.reason.provisions import is_library_file
from hangdoc.diagnosis.reason.relays import LOOPS, handed_on
from hangdoc.diagnosis.reason.starts import CULPRITS, GUESSED, OTHERS, Kind, Sides, Start

Item = Predicate | Definition
OFFSET = {
    Kind.CALLED: 0.0,
    Kind.FORK: 0.0,
    Kind.WITHIN: 0.0,
    Kind.TOUCHING: 0.5,
    Kind.MISSED: 1.5,
    Kind.NOW: 2.0,
    Kind.THREAD: 4.0,
    Kind.RAISED: 0.5,
    Kind.OUTSIDE: 6.0,
}
"""What a slice begins with by its start, in steps of control dependence."""
WORTH_A_LOOK = 0.45
"""The share from which on a reason that nothing shows to differ is told: of these, four of five are right or belong to
the chain (``tests/accuracy/why.py``)."""
LEVEL = 1.0
"""What each call below the function in which both sides were adds."""
_CATCHES = ("except", "with")
_ENDS_OF_ITEMS = ("StopIteration", "StopAsyncIteration")


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
    def meant(self) -> tuple[int, str]:
        """(the side that was led to the start by it, or was to be; by which outcome)."""
        return self.start.side if self.start.came else OTHERS, self.reached.outcome

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
    at: tuple[str, int] = ("", 0)
    """(file, line) of that line."""
    share: float = 0.0
    """Of all that was found, nothing included: the chance that it is the one, 0 to 1."""

    @property
    def of_library(self) -> bool:
        """True if it stands in a library."""
        return is_library_file(self.item.file)


def decides(reason: Reason) -> bool:
    """True if it decides whether the start is come to, by itself or by a flag; else it bears on a value there."""
    first = next(iter(reason.path), reason.item)
    return isinstance(first, Predicate) and (first is reason.item or handed_on(first, reason))


def line_of_item(case: Case, item: Predicate | Definition) -> str:
    """The line where it stands, as it is written; the item alone where that is not known."""
    return case.sources.line(item.file, item.line) or item.text


def judged(known: Known, sides: Sides, item: Item, arrivals: list[Arrival]) -> Reason:
    """The item with what is known of it; of several ways to it the nearest."""
    nearest = min(arrivals, key=lambda each: each.distance)
    distance, path, start = nearest.distance, nearest.reached.path, nearest.start
    if isinstance(item, Definition):
        differ = known.values_differ(item)
        strength = Strength.MAY if differ else Strength.UNKNOWN
        source = "values" if differ else ""
        return Reason(item, ("", ""), strength, distance, path, source, start=start.kind, at=start.lines[0])
    outcomes = _by_stacks(arrivals)
    direct = any(each.is_direct for each in arrivals)
    strength, source = _strength(known, sides, item, nearest, outcomes, arrivals)
    return Reason(item, outcomes, strength, distance, path, source, direct, start.kind, start.lines[0])


def _strength(
    known: Known, sides: Sides, item: Predicate, nearest: Arrival, outcomes: tuple[str, str], arrivals: list[Arrival]
) -> tuple[Strength, str]:
    side, outcome = nearest.meant
    if not nearest.start.came:
        led = any(each.start.side == CULPRITS and each.start.kind not in GUESSED for each in arrivals)
        if outcome and not led and known.holds_by_rank(item, outcome):
            return Strength.ALIKE, "rank"  # it is their part, and they play it
    elif nearest.start.kind != Kind.RAISED and known.table.never_asked(item, sides[1 - side]):
        return Strength.ALIKE, "counters"  # a predicate before it kept them away
    told = known.decides(item, side, outcome)
    if told is not None:
        by_chance = nearest.start.kind == Kind.OUTSIDE or known.table.never_asked(item, sides.culprits)
        return (Strength.MAY, told[1]) if by_chance and told[0] == Strength.PROVED else told
    if known.is_constant(item):
        return Strength.ALIKE, "constant"
    shared = any((item.file, plain(item.function)) in each.start.common for each in arrivals)
    if outcomes[0] and outcomes[1] and shared:
        if outcomes[0] == outcomes[1]:
            return Strength.ALIKE, "stacks"
        # Of two sides in one loop, one may be further on.
        return (Strength.MAY if item.kind in LOOPS else Strength.PROVED), "stacks"
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
    direct = [each for each in arrivals if each.is_direct and each.start.kind not in (*GUESSED, Kind.THREAD)]
    first = [each for each in direct if each.start.kind in (Kind.CALLED, Kind.FORK)]
    found: list[set[str]] = [set(), set()]
    for each in first or direct:
        found[each.start.side].add(each.reached.outcome)
    return (_one(found[CULPRITS]), _one(found[OTHERS]))


def _one(outcomes: set[str]) -> str:
    return next(iter(outcomes)) if len(outcomes) == 1 else ""


def caught(reasons: Sequence[Reason]) -> list[Predicate]:
    """What may have caught something on one side alone, of the likeliest reasons."""
    found = (each.item for each in reasons[:LISTED] if each.strength > Strength.UNKNOWN)
    return [item for item in found if isinstance(item, Predicate) and item.kind in _CATCHES]


def is_end_of_items(handler: Predicate) -> bool:
    """True of `except StopIteration:`, which is how a loop ends."""
    return handler.subject in _ENDS_OF_ITEMS


def is_by_exception(reason: Reason) -> bool:
    """True if an exception has parted the sides by it: one side alone has caught, or may have raised."""
    return reason.strength > Strength.UNKNOWN and (
        reason.start == Kind.RAISED or any(not is_end_of_items(item) for item in caught([reason]))
    )
