"""Of ranks that all wait alike, the one that went another way before: it alone has run what no other rank has.

What they wait for now shows no difference, but the interpreters' counters, and what a suite left behind, still tell of
the round in which one of them left something out. Of 336 saved jobs whose lines were counted, one rank alone had been
in a suite that leaves a function or a round in 46, and it was to blame in 42; of any other suite in 37, and in 31.

Example: four ranks wait for a key that the last one to finish sets, and rank 1 alone has run `print("empty")` under
`if not rows: ⏎ print("empty") ⏎ continue` → rank 1.
"""

from __future__ import annotations

from collections.abc import Iterable

from hangdoc.diagnosis.condition.elsewhere.left_behind import LeftBehind, left_behind
from hangdoc.diagnosis.condition.elsewhere.ran_alone import ran_alone
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.stacks import user_stack

_MOST_RANKS = 64
"""Ranks of which each is compared with all others; chosen by hand."""
_MOST_ALONE = 8
"""Ranks that have each run what no other has: of more, each goes its own way. Chosen by hand."""


def odd_by_lines(case: Case, among: Iterable[int]) -> int | None:
    """That rank, where there is one and it is of these; None otherwise, and where a rank was not seen.

    Of two ranks the suite has to leave a function or a round: else either may be the odd one.
    """
    everybody = tuple(sorted(case.seen))
    if case.hidden or not 1 < len(everybody) <= _MOST_RANKS or len(case.table.known(everybody)) < len(everybody):
        return None
    alone = case.table.ran_what_no_other_has(everybody)
    if len(alone) > _MOST_ALONE:
        return None
    left = {rank: found for rank in alone if (found := left_by_one(case, rank, everybody))}
    leading = [rank for rank, found in left.items() if any(each.leads_out for each in found)]
    odd = leading or (list(left) if len(everybody) > 2 else [])
    return odd[0] if len(odd) == 1 and odd[0] in set(among) else None


def left_out_by_lines(case: Case, among: Iterable[int]) -> int | None:
    """The one rank that alone has not been in a suite in which all others have been, where none has been alone in one.

    Of the saved jobs, that was the one to blame in seven of ten: it is to be doubted.
    """
    everybody = tuple(sorted(case.seen))
    if case.hidden or not 2 < len(everybody) <= _MOST_ALONE or len(case.table.known(everybody)) < len(everybody):
        return None
    if case.table.ran_what_no_other_has(everybody):
        return None
    sides = {rank: ((rank,), tuple(other for other in everybody if other != rank)) for rank in everybody}
    odd = [rank for rank, side in sides.items() if any(each.side == 1 for each in ran_alone(case, side))]
    return odd[0] if len(odd) == 1 and odd[0] in set(among) else None


def ran_alone_text(rank: int) -> str:
    """What makes it the odd one, for "sure?"."""
    return f"rank {rank} alone has run what no other rank has"


def left_by_one(case: Case, rank: int, everybody: tuple[int, ...]) -> list[LeftBehind]:
    """What the rank alone has been in, but for the suites that it is in now, where it waits."""
    sides = (rank,), tuple(other for other in everybody if other != rank)
    now = {(frame.file, frame.line) for frame in user_stack(case.activities[rank].stack)}
    found = (*left_behind(case, sides), *ran_alone(case, sides))
    return [each for each in found if each.side == 0 and (each.file, each.line) not in now]
