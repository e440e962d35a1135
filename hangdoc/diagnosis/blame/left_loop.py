"""Whether a rank is further on than another one, in the same round of the loops around both."""

from __future__ import annotations

from hangdoc.diagnosis.condition.rounds_ahead import is_in_one_round
from hangdoc.diagnosis.condition.stack_comparison import is_past
from hangdoc.diagnosis.context import Case


def is_past_in_round(case: Case, rank: int, other: int) -> bool:
    """True if the rank is certainly further on than the other: in the same round of the loops that both are in, as far
    as there are any."""
    how = is_past(case.sources, case.activities[rank].stack, case.activities[other].stack)
    return how == "certainly" or (how == "perhaps" and is_in_one_round(case, rank, other))
