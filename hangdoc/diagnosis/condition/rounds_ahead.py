"""Which side of a divergence is in a later round of the loops that both are in, by what counts the rounds.

Example: `for step in range(n): ⏎ train() ⏎ score()`; rank 1 is in train() with step 3, the others in score() with
step 2 → rank 1 is further on: it has left score() behind.
"""

from __future__ import annotations

from collections.abc import Sequence

from hangdoc.diagnosis.calls.history import Token
from hangdoc.diagnosis.condition.stack_comparison import (
    common_rounds,
    is_past,
)
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.stacks import Site


def is_further_on(case: Case, mine: Sequence[Token], theirs: Sequence[Token]) -> bool:
    """True if the loops' counters show each of ``mine`` in a later round than each of ``theirs``, or further on in the
    same: their ranks have left the others' calls behind, and the others have not come to theirs.

    Example: in `for step in range(n):`, step is 3 on the rank of ``mine`` and 2 on that of ``theirs``.
    """
    sides = [_by_site(tokens) for tokens in (mine, theirs)]
    return all(sides) and all(_are_ahead(case, a, b) for a in sides[0] for b in sides[1])


def _by_site(tokens: Sequence[Token]) -> list[list[Token]]:
    found: dict[Site, list[Token]] = {}
    for token in tokens:
        found.setdefault(token.site, []).append(token)
    return list(found.values())


def _are_ahead(case: Case, mine: list[Token], theirs: list[Token]) -> bool:
    """The same, of ranks that are at one line on either side."""
    stacks, tokens = (mine[0].stack, theirs[0].stack), (*mine, *theirs)
    counted = [case.values.of(*each) for each in common_rounds(case.sources, *stacks)]
    if not counted or not all(per_rank.get(t.rank, "").isdigit() for per_rank in counted for t in tokens):
        return False
    here, there = ([[int(per_rank[t.rank]) for per_rank in counted] for t in side] for side in (mine, theirs))
    if min(here) == max(here) == min(there) == max(there):
        return is_past(case.sources, *stacks) is not None
    return min(here) > max(there)  # the outermost loop that differs decides


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


def is_past_in_round(case: Case, rank: int, other: int) -> bool:
    """True if the rank is certainly further on than the other: in the same round of the loops that both are in, as far
    as there are any."""
    how = is_past(case.sources, case.activities[rank].stack, case.activities[other].stack)
    return how == "certainly" or (how == "perhaps" and is_in_one_round(case, rank, other))
