"""A function of the user's on the way of a side whose source was not read: what parted the sides may lie in there.

Example: `if self.every(n):` leads on rank 0 to a function whose decorator's `wrapper` is in a file that was deleted,
and from there to the call. Ranks 1 and 2 wait elsewhere; nothing shows whether they passed the `if`, too, and came back
from the wrapper.
"""

from __future__ import annotations

from hangdoc.diagnosis.calls.alignment import Gap
from hangdoc.diagnosis.condition.branch_point import BranchPoint
from hangdoc.diagnosis.condition.tested import FITS, SEEN, decided
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.stacks import fork
from hangdoc.diagnosis.source.values import SideRanks
from hangdoc.model.process import Frame


def unread_on_the_way(case: Case, gap: Gap | None, point: BranchPoint | None, ranks: SideRanks) -> Frame | None:
    """The first such function from the one on in which both sides are, on the way of the side that passed the condition
    or, without one, made the call that the other did not; None where there is none.

    None as well where the condition's own values, or what has run, show that the other side has not passed it, and
    where no source was read at all: then no condition is claimed. ``ranks``: the culprits, the others.
    """
    if gap is None or gap.mine is None or gap.theirs is None:
        return None
    if point is not None and _is_told(case, point, ranks):
        return None
    guarded = point.guarded if point is not None else int(gap.token is not gap.mine)
    ways = fork(gap.mine.stack, gap.theirs.stack)
    way = (ways.mine, ways.theirs)[guarded][max(0, ways.common - (ways.within_function is None)) :]
    unread = [frame for frame in way if case.sources.function(frame.file, frame.line) is None]
    return next((f for f in unread if not f.file.startswith("<")), None) if len(unread) < len(way) else None


def _is_told(case: Case, point: BranchPoint, ranks: SideRanks) -> bool:
    """True if it is seen, and not only deduced from where the sides are, that they took the condition differently."""
    if point.seen or point.differs or point.rank_like or point.of_library or point.made or point.registered:
        return True
    under, others = ranks[point.guarded], ranks[1 - point.guarded]
    return decided(case.sources, case.ran, point.file, point.guard, under=under, others=others) in (SEEN, FITS)
