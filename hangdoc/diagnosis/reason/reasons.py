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

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from hangdoc.diagnosis.bounds import COMPARED, SCANNED
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.program.items import Reached
from hangdoc.diagnosis.program.program import Program
from hangdoc.diagnosis.reason.evidence import Evidence
from hangdoc.diagnosis.reason.judged import Arrival, Item, Reason, judged
from hangdoc.diagnosis.reason.known import Known, Strength
from hangdoc.diagnosis.reason.ranking import ranked
from hangdoc.diagnosis.reason.relays import sources_of
from hangdoc.diagnosis.reason.starts import GUESSED, Kind, Parted, Sides, Start, starts_of

MOST_LINES = 5000
"""Of a function that is looked at: longer ones are generated, and tell nobody a reason."""


@dataclass(frozen=True, slots=True)
class Found:
    """``slice``: all that was come to, the nearest first. ``reasons``: what may have parted the sides, the likeliest
    first."""

    slice: tuple[Item, ...]
    reasons: tuple[Reason, ...]


def reasons(case: Case, sides: Sides, parted: Sequence[Parted] = ()) -> Found:
    """What parted the sides. ``parted``: the calls at which their histories diverge, where they do."""
    arrivals = _arrivals(case.program, starts_of(case, case.program, sides, parted))
    alone = bool(sides.culprits) and not sides.others
    found = () if alone else tuple(ranked(_weighed(case, sides, arrivals, parted=bool(parted))))
    return Found(_nearest_first(arrivals), found)


def alternatives(case: Case, sides: Sides, parted: Sequence[Parted] = ()) -> Mapping[Reason, frozenset[str]]:
    """The reasons that are weighed, with what speaks for each."""
    arrivals = _arrivals(case.program, starts_of(case, case.program, sides, parted))
    return _weighed(case, sides, arrivals, parted=bool(parted))


def _weighed(
    case: Case, sides: Sides, arrivals: Mapping[Item, list[Arrival]], *, parted: bool
) -> Mapping[Reason, frozenset[str]]:
    known = Known(case, sides)
    every = {item: judged(known, sides, item, each) for item, each in arrivals.items()}
    listed = [each for each in _with_sources(every) if each.strength > Strength.ALIKE]
    nearest = sorted(listed, key=lambda each: (each.of_library, each.distance))[:COMPARED]
    return Evidence(known, case.program, sides, parted=parted).of(nearest)


def slice_of(case: Case, sides: Sides, parted: Sequence[Parted] = ()) -> tuple[Item, ...]:
    """All that may have decided whether each side came to where it is, the nearest first."""
    return _nearest_first(_arrivals(case.program, starts_of(case, case.program, sides, parted)))


def _nearest_first(arrivals: Mapping[Item, Sequence[Arrival]]) -> tuple[Item, ...]:
    return tuple(sorted(arrivals, key=lambda item: min(each.distance for each in arrivals[item])))


def _arrivals(program: Program, starts: Iterable[Start]) -> dict[Item, list[Arrival]]:
    found: dict[Item, list[Arrival]] = {}
    for start in starts:
        file, line = start.lines[0]
        stack = start.lines if start.kind not in GUESSED else ()
        most = SCANNED if start.kind not in GUESSED else COMPARED
        function = program.function(file, line)
        if function is not None and function.end_line - function.line > MOST_LINES:
            continue
        if start.kind == Kind.OUTSIDE:
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
            strength = max(
                own.strength, min(found[reason.item].strength, Strength.MAY)
            )  # theirs is no proof of its own
            nearer = found[reason.item].distance - 0.25
            found[item] = replace(own, strength=strength, distance=nearer, direct=True)
    return list(found.values())
