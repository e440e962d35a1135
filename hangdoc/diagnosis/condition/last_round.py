"""The guards at which a side that is in a later round than the other can have diverged from it."""

from __future__ import annotations

from hangdoc.diagnosis.condition.stack_comparison import (
    common_rounds,
)
from hangdoc.diagnosis.context import Case


def rounds_of(case: Case, *pair: int) -> tuple[list[int], list[int]] | None:
    """The counts of the loops that both ranks are in, the outermost first; None where one is not seen, or is none."""
    names = common_rounds(case.sources, *(case.activities[rank].stack for rank in pair))
    counts = [[case.values.of(*each).get(rank, "") for each in names] for rank in pair]
    if not names or not all(count.isdecimal() for each in counts for count in each):
        return None
    return list(map(int, counts[0])), list(map(int, counts[1]))


def is_in_one_round(case: Case, rank: int, other: int) -> bool:
    """True if the counters of the loops that both ranks are in show one round of them."""
    rounds = rounds_of(case, rank, other)
    return rounds is not None and rounds[0] == rounds[1]
