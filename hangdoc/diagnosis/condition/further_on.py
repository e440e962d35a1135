"""What lies between a condition that one side has passed and its call, and may have parted the sides instead: a
function of the user's whose source was not read, or a library's own test of the data.

Example: `if self.every(n):` leads on rank 0 to a function whose decorator's `wrapper` is in a file that was deleted,
and from there to the call. Ranks 1 and 2 wait elsewhere; nothing shows whether they passed the `if`, too, and came back
from the wrapper. As little is known below `if self.boundary():` of `scaler.step(optimizer)`, which does nothing for
gradients that overflowed.
"""

from __future__ import annotations

from dataclasses import dataclass

from hangdoc.diagnosis.calls.alignment import Gap
from hangdoc.diagnosis.condition.branch_point import BranchPoint
from hangdoc.diagnosis.condition.elsewhere.in_library import conditions_in_library
from hangdoc.diagnosis.condition.tested import FITS, SEEN, decided
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.stacks import fork
from hangdoc.diagnosis.source.guards import CONDITIONS
from hangdoc.diagnosis.source.values import SideRanks
from hangdoc.model.message import Condition
from hangdoc.model.process import Frame, Stack


@dataclass(frozen=True, slots=True)
class FurtherOn:
    """What may have parted the sides instead of a condition; nothing where that is empty."""

    unread: Frame | None = None
    """The first function that was not read, from the one on in which both sides are."""
    by_library: tuple[Condition, ...] = ()
    """Tests in a library below the last line of the user's, which the other side may have run as well."""

    def __bool__(self) -> bool:
        return self.unread is not None or bool(self.by_library)


def further_on(case: Case, gap: Gap | None, point: BranchPoint | None, ranks: SideRanks) -> FurtherOn:
    """What lies further on, on the way of the side that passed the condition, or that made the call without one.

    Nothing where the condition's own values, or what has run, show that the other side has not passed it, and nothing
    where no source was read at all: then no condition is claimed. ``ranks``: the culprits, the others.
    """
    if gap is None or gap.mine is None or gap.theirs is None:
        return FurtherOn()
    if point is not None and _is_told(case, point, ranks):
        return FurtherOn()
    guarded = point.guarded if point is not None else int(gap.token is not gap.mine)
    ways = fork(gap.mine.stack, gap.theirs.stack)
    way = (ways.mine, ways.theirs)[guarded][max(0, ways.common - (ways.within_function is None)) :]
    unread = [frame for frame in way if case.sources.function(frame.file, frame.line) is None]
    if len(unread) == len(way):
        return FurtherOn()
    stack = (gap.mine, gap.theirs)[guarded].stack
    by_library: list[Condition] = []
    if point is not None and point.guard.kind in CONDITIONS and _may_have_passed(case, way, ranks[1 - guarded]):
        by_library = conditions_in_library(case.sources, stack, of_values=True)
    return FurtherOn(next((f for f in unread if not f.file.startswith("<")), None), tuple(by_library))


def _may_have_passed(case: Case, way: Stack, others: tuple[int, ...]) -> bool:
    """False if one of the other side is seen never to have run the line that calls the library."""
    return not any(case.table.ran(rank, way[-1].file, way[-1].line) is False for rank in others)


def _is_told(case: Case, point: BranchPoint, ranks: SideRanks) -> bool:
    """True if it is seen, and not only deduced from where the sides are, that they took the condition differently."""
    if point.seen or point.differs or point.rank_like or point.of_library or point.made or point.registered:
        return True
    under, others = ranks[point.guarded], ranks[1 - point.guarded]
    return decided(case.table, point.file, point.guard, under=under, others=others) in (SEEN, FITS)
