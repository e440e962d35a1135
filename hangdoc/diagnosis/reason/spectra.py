"""The one test of the program whose recorded outcomes set the sides apart, where no slice leads to it.

Program spectra (Reps, Ball, Das, Larus 1997; Harrold, Rothermel, Wu, Yi 1998): of each run, here of each rank, how
often every test came out in each way; what differs between runs that fail and runs that do not points to the fault. Of
ranks that agree on everything else, one difference is enough.

Example: a rank logs a metric less, through a library whose code no slice goes through; `if lesion.any():` was False
once on it, True three times on all others, and every other test came out equally often on all → that test.
"""

from __future__ import annotations

from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.execution.outcomes import RECORDER, Place
from hangdoc.diagnosis.program.items import Predicate
from hangdoc.diagnosis.reason.provisions import is_library_file
from hangdoc.diagnosis.reason.starts import Sides


def odd_in_spectra(case: Case, sides: Sides) -> Predicate | None:
    """The one predicate of the user's that came out as never on the other side, else the one that came out more or less
    often there; None where there are several or none. The others have to agree, and what is always so on one side and
    never on the other is a part to play."""
    outcomes = case.table.outcomes
    if not sides.culprits or not sides.others or not {*sides.culprits, *sides.others} <= {*outcomes.recorded()}:
        return None
    places = outcomes.common((*sides.culprits, *sides.others))
    odd = {at: each for at in places if not is_library_file(at[0]) and (each := _odd(case, sides, at)) is not None}
    new = [place for place, is_new in odd.items() if is_new]
    found = new if len(new) == 1 else list(odd)
    return _predicate(case, found[0]) if len(found) == 1 else None


def _odd(case: Case, sides: Sides, place: Place) -> bool | None:
    """True if one side had an outcome there that the other never had, False if it had one more or less often; None
    where it did neither, or nobody knows."""
    mine, theirs = ({_counts(case, rank, place) for rank in ranks} for ranks in sides)
    both = [each for each in mine | theirs if each is not None]
    if None in mine | theirs or len(theirs) != 1 or mine & theirs or all(len(counts) < 2 for counts in both):
        return None
    had = [{value for counts in side if counts is not None for value, _ in counts} for side in (mine, theirs)]
    return had[0] != had[1]


def _counts(case: Case, rank: int, place: Place) -> frozenset[tuple[str, int]] | None:
    """How often it came out in each way that it ever did; None where not all of it was recorded."""
    found = case.table.outcomes.of(rank, place)
    if found is None or found.source != RECORDER or not found.whole:
        return None
    return frozenset((value, count) for value, count in found.counts.items() if count)


def _predicate(case: Case, place: Place) -> Predicate | None:
    file, line, *_ = place
    function = case.program.function(file, line)
    at = [each for each in function.predicates if each.line == line] if function is not None else []
    exact = [each for each in at if each.column == place[2]]
    return next(iter(exact or at), None)
