"""A lock that a program makes of a store key by compare_set, which one rank took and never gave back.

Example: ranks 1 and 2 poll in `while store.compare_set(key, FREE, name) != name:` of take(), rank 0 alone is past
take() and waits for them → rank 0, which left refresh() under `if self.fresh(shard): ⏎ return`.
"""

from __future__ import annotations

from dataclasses import dataclass

from hangdoc.diagnosis.blame.how_sure import at_one_line
from hangdoc.diagnosis.blame.left_lock import has_passed
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Explanation
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.source.locks import only_way_out
from hangdoc.diagnosis.source.polls import calls_in_its_loop
from hangdoc.model.kinds import ActivityKind, Confidence
from hangdoc.model.message import Condition
from hangdoc.model.process import Frame

_MOST_FRAMES = 3
"""Functions around the call that tries, in which a way out may lead past giving it back; chosen by hand."""


@dataclass(frozen=True, slots=True)
class StoreLock(Explanation):
    """The culprit is past the line at which the others still try to be the owner of a store key."""

    trying: tuple[int, ...]
    tried_at: Frame
    test: Condition | None
    """The only condition after that line under which its function returns early."""


def store_lock(case: Case) -> Blame[StoreLock] | None:
    """The blame of the rank that is past that line; None where several are, or others may still come back."""
    trying = tuple(sorted(case.graph.roots & case.seen))
    if not trying or not all(_tries(case, rank) for rank in trying):
        return None
    if not at_one_line(case, trying):
        return None
    past = tuple(rank for rank in sorted(case.seen - set(trying)) if has_passed(case, rank, trying))
    if len(past) != 1:
        return None
    frames = user_stack(case.activities[trying[0]].stack)[:_MOST_FRAMES]
    outs = [(frame.file, out) for frame in frames if (out := only_way_out(frame, case.sources)) is not None]
    test = Condition(outs[0][1].condition, outs[0][0], outs[0][1].line) if outs else None
    sure = f"rank {past[0]} alone is past the line that makes a rank the owner"
    return Blame(StoreLock(trying, frames[0], test), past, confidence=Confidence.LIKELY, sure=sure)


def _tries(case: Case, rank: int) -> bool:
    """True if the rank sleeps in a loop that compares and sets a key."""
    activity = case.activities[rank]
    asleep = activity.kind is ActivityKind.SLEEPING
    return asleep and calls_in_its_loop(case.sources, activity.stack, names("compares_key"))
