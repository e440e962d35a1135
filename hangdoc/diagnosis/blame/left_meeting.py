"""Ranks wait at a barrier of multiprocessing's, which all ranks share, and the others have gone past it.

Example: mp.spawn gives each rank one Barrier(3); ranks 0 and 1 wait in `self.meeting.wait()`, rank 2 is in the
all_reduce after that loop, and waits for them → rank 2.
"""

from __future__ import annotations

from dataclasses import dataclass

from hangdoc.diagnosis.condition.stack_comparison import in_one_loop, is_past
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Explanation
from hangdoc.diagnosis.frames.landmarks import below_user, plain
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.model.kinds import COMMUNICATING, Confidence
from hangdoc.model.process import Frame, Stack
from hangdoc.model.wording import ranks_text


@dataclass(frozen=True, slots=True)
class LeftMeeting(Explanation):
    """The culprits are past the barrier between processes at which the others wait."""

    waiting: tuple[int, ...]
    meets_at: Frame


def left_meeting(case: Case) -> Blame[LeftMeeting] | None:
    """The blame of the ranks that are past the barrier; None where others may still come to it, or where the ranks that
    wait have processes of their own, with which they may meet there."""
    waiting = tuple(rank for rank in sorted(case.seen) if _meets(case.activities[rank].stack))
    others = tuple(sorted(case.seen - set(waiting)))
    places = {(f.file, f.line): f for rank in waiting for f in user_stack(case.activities[rank].stack)[:1]}
    if not others or len(places) != 1 or case.hidden or any(_has_children(case, rank) for rank in waiting):
        return None
    if not all(_is_past(case, rank, waiting[0]) for rank in others):
        return None
    sure = f"{ranks_text(others)} {'is' if len(others) == 1 else 'are'} past the barrier, and waits for who is there"
    (meets_at,) = places.values()
    return Blame(LeftMeeting(waiting, meets_at), others, proved=True, confidence=Confidence.LIKELY, sure=sure)


def _meets(stack: Stack) -> bool:
    """True if the stack waits at a barrier that processes share."""
    below = below_user(stack)
    barrier = any(plain(frame.function).rpartition(".")[2] in names("in_barrier") for frame in below)
    return barrier and any(frame.file.endswith(names("process_lock_file")) for frame in below)


def _has_children(case: Case, rank: int) -> bool:
    process = case.ranks[rank].process
    return process is not None and any(child.last is not None for child in process.children)


def _is_past(case: Case, rank: int, waiting: int) -> bool:
    """True if the rank waits for who is at the barrier, from a line behind it."""
    mine, theirs = case.activities[rank], case.activities[waiting]
    if mine.kind not in COMMUNICATING:
        return False
    past = is_past(case.sources, mine.stack, theirs.stack)
    ahead = waiting in case.graph.on(rank)
    return past == "certainly" or (ahead and (past == "perhaps" or in_one_loop(case.sources, mine.stack, theirs.stack)))
