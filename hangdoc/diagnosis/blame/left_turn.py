"""Ranks poll for what each rank does in its turn, and one that is past it has never done it.

Example: ranks 2 and 3 poll in `while store.add("turn", 0) != rank:`; ranks 0 and 1 are in the all_reduce after it, and
rank 1 alone of these has never run the `store.add("turn", 1)` that passes the turn on → rank 1.
"""

from __future__ import annotations

from dataclasses import dataclass

from hangdoc.diagnosis.blame.how_sure import at_one_line, polls
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Explanation
from hangdoc.diagnosis.source.polls import what_ends_polling
from hangdoc.diagnosis.source.syntax import innermost_loop
from hangdoc.model.kinds import COMMUNICATING, Confidence
from hangdoc.model.process import Frame
from hangdoc.model.wording import ranks_text


@dataclass(frozen=True, slots=True)
class LeftTurn(Explanation):
    """The culprits went on without the line that ends the polling of the others, which other ranks have run."""

    waiting: tuple[int, ...]
    done: tuple[int, ...]
    ends_at: Frame


def left_turn(case: Case) -> Blame[LeftTurn] | None:
    """The blame of those ranks; None where the counters do not tell who has run the line, or none of the others has."""
    waiting = tuple(rank for rank in sorted(case.seen) if polls(case, rank))
    others = tuple(sorted(case.seen - set(waiting)))
    if not waiting or not others or case.hidden or any(case.activities[r].kind not in COMMUNICATING for r in others):
        return None
    if not at_one_line(case, waiting):
        return None
    ending = what_ends_polling(case.sources, case.activities[waiting[0]].stack)
    if ending is None or ending.removes:
        return None
    done, left, unknown = case.table.split(others, ending.at.file, ending.at.line)
    if not done or not left or unknown:
        return None
    if any(_never_polled(case, rank, waiting[0]) for rank in done):
        return None  # one that lets the others go on has no turn, and who has another part need not either
    sure = f"of the ranks that are past it, {ranks_text(left)} alone never ran the line that ends the polling"
    return Blame(LeftTurn(waiting, done, ending.at), left, confidence=Confidence.LIKELY, sure=sure)


def _never_polled(case: Case, rank: int, waiting: int) -> bool:
    """True if the rank has never come to the loop in which the other one polls."""
    where = case.activities[waiting].where
    tree = case.sources.function(where.file, where.line) if where is not None else None
    loop = innermost_loop(tree, where.line) if tree is not None and where is not None else None
    return loop is not None and where is not None and case.table.ran(rank, where.file, loop.lineno) is False
