"""Of ranks that all wait alike, the one that went another way before.

What they wait for now shows no difference, but the interpreters' counters still tell of the round in which one of them
left something out.
"""

from __future__ import annotations

from collections.abc import Iterable

from hangdoc.diagnosis.bounds import TRIED
from hangdoc.diagnosis.condition.elsewhere.ran_alone import RanAlone, ran_alone
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.stacks import user_stack


def left_out_by_lines(case: Case, among: Iterable[int]) -> int | None:
    """The one rank that alone has not been in a suite in which all others have been, where none has been alone in one.

    Of the saved jobs, that was the one to blame in seven of ten: it is to be doubted.
    """
    everybody = tuple(sorted(case.seen))
    if case.hidden or not 2 < len(everybody) <= TRIED or len(case.table.known(everybody)) < len(everybody):
        return None
    if case.table.ran_what_no_other_has(everybody):
        return None
    sides = {rank: ((rank,), tuple(other for other in everybody if other != rank)) for rank in everybody}
    odd = [rank for rank, side in sides.items() if any(each.side == 1 for each in ran_alone(case, side))]
    return odd[0] if len(odd) == 1 and odd[0] in set(among) else None


def left_by_one(case: Case, rank: int, everybody: tuple[int, ...]) -> list[RanAlone]:
    """What the rank alone has been in, but for the suites that it is in now, where it waits."""
    sides = (rank,), tuple(other for other in everybody if other != rank)
    now = {(frame.file, frame.line) for frame in user_stack(case.activities[rank].stack)}
    return [each for each in ran_alone(case, sides) if each.side == 0 and (each.file, each.line) not in now]
