"""A library's loop within another one of its own: did one side leave it early, or have the others begun it again?

Example: an engine goes over the batches in `while True:`, below `while epoch < last:`. Rank 0 is in a handler at the
end of an epoch, the others in a batch. They may be in rank 0's epoch, which ended on rank 0 alone; or in the next one,
and rank 0 is in what they were never given.
"""

from __future__ import annotations

from functools import partial

from hangdoc.diagnosis.condition.branch_point import BranchPoint
from hangdoc.diagnosis.condition.stack_comparison import callees_of, guards_of, readable
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.frames.library import is_library
from hangdoc.diagnosis.frames.stacks import fork
from hangdoc.diagnosis.source.guards import Guard
from hangdoc.diagnosis.source.values import SideRanks, sides_differ
from hangdoc.model.process import Frame, Stack


def may_have_begun_again(case: Case, loop: BranchPoint, sides: tuple[Stack, Stack], ranks: SideRanks) -> bool:
    """True if both sides are in a round of a library's loop around ``loop``, and none of them is seen to be the same.

    ``sides[i]`` and ``ranks[i]`` are those of side i.
    """
    where = fork(*sides, frames_of=partial(readable, case.sources))
    for mine, theirs in zip(where.mine[: where.common + 1], where.theirs[: where.common + 1], strict=False):
        if not is_library(mine) or (mine.file, mine.function) != (theirs.file, theirs.function):
            continue
        here, there = (
            guards_of(case.sources, *at) for at in ((mine, callees_of(sides[0])), (theirs, callees_of(sides[1])))
        )
        loops = [g for g in here if g.kind == "loop" and g in there and g.place != loop.guard.place]
        if any(not _is_one_round(case, mine, guard, ranks) for guard in loops):
            return True
    return False


def _is_one_round(case: Case, frame: Frame, loop: Guard, ranks: SideRanks) -> bool:
    """True if what counts its rounds is seen, and alike on both sides."""
    counts = [case.values.of(frame.file, plain(frame.function), name) for name in loop.rounds]
    return any(sides_differ(each, ranks) is False for each in counts)
