"""The one test of the program whose recorded outcomes set the sides apart, where no slice leads to it.

Program spectra (Reps, Ball, Das, Larus 1997; Harrold, Rothermel, Wu, Yi 1998): of each run, here of each rank, how
often every test came out in each way; what differs between runs that fail and runs that do not points to the fault. Of
ranks that agree on everything else, one difference is enough.

Example: a rank logs a metric less, through a library whose code no slice goes through; `if lesion.any():` was False
once on it, True three times on all others, and every other test came out equally often on all → that test.
"""

from __future__ import annotations

from collections.abc import Mapping

from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.execution.outcomes import RECORDER, Place
from hangdoc.diagnosis.program.items import Predicate
from hangdoc.diagnosis.reason.provisions import is_library_file
from hangdoc.diagnosis.reason.starts import Sides


def odd_in_spectra(case: Case, sides: Sides) -> Predicate | None:
    """The one predicate of the user's that came out more or less often on all culprits than on the others, who agree;
    None where there are several or none. What is always so on one side and never on the other is a part to play."""
    outcomes = case.table.outcomes
    if not sides.culprits or not sides.others or not {*sides.culprits, *sides.others} <= {*outcomes.recorded()}:
        return None
    places = outcomes.common((*sides.culprits, *sides.others))
    odd = [place for place in places if not is_library_file(place[0]) and _is_odd(case, sides, place)]
    found = {each for place in odd if (each := _predicate(case, place)) is not None}
    return found.pop() if len(found) == 1 and len({place[:2] for place in odd}) == 1 else None


def _is_odd(case: Case, sides: Sides, place: Place) -> bool:
    mine, theirs = ({_counts(case, rank, place) for rank in ranks} for ranks in sides)
    if None in mine | theirs or len(theirs) != 1 or mine & theirs:
        return False
    return any(counts is not None and len(counts) > 1 for counts in mine | theirs)


def _counts(case: Case, rank: int, place: Place) -> frozenset[tuple[str, int]] | None:
    """How often it came out in each way that it ever did; None where not all of it was recorded."""
    found = case.table.outcomes.of(rank, place)
    if found is None or found.source != RECORDER or not found.whole:
        return None
    return _ever(found.counts)


def _ever(counts: Mapping[str, int]) -> frozenset[tuple[str, int]]:
    return frozenset((value, count) for value, count in counts.items() if count)


def _predicate(case: Case, place: Place) -> Predicate | None:
    file, line, *_ = place
    function = case.program.function(file, line)
    at = [each for each in function.predicates if each.line == line] if function is not None else []
    exact = [each for each in at if each.column == place[2]]
    return next(iter(exact or at), None)
