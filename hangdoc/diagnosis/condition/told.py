"""What the ranks wrote, asked of each candidate: a line that one side alone wrote in its other arm confirms it.

Example: rank 1 is in the next epoch, the others in what `keeper.offer(score)` calls past `if score <= self.best: ⏎
log.info("no improvement") ⏎ return`, and rank 1 alone wrote that line → the `if`, before the library's loop around
both.
"""

from __future__ import annotations

import ast
from dataclasses import replace

from hangdoc.diagnosis.condition.branch_point import BranchPoint
from hangdoc.diagnosis.condition.elsewhere.written import WrittenUnder, written_under
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import walk
from hangdoc.diagnosis.source.values import SideRanks
from hangdoc.model.process import Stack

_DOUBT = "only the output tells what decided it"


def by_what_was_written(
    case: Case, points: list[BranchPoint], sides: tuple[Stack, Stack], ranks: SideRanks
) -> list[BranchPoint]:
    """``points`` with those first of which a side that is not under them wrote in the other arm, and the other side
    never did.

    No more than an order: what else would look the same is still said.
    """
    if not case.job.written or not points or points[0].seen or (case.programs and _is_known(points[0])):
        return points
    told: list[BranchPoint] = []
    for side in (0, 1):
        other = [point for point in points if point.guarded != side and not point.of_library]
        found = _written(case, sides, ranks, side) if other else []
        other = [point for point in other if any(_is_other_arm(case.sources, point, each) for each in found)]
        told += [replace(point, told=True, doubt=point.doubt or _DOUBT) for point in other]
    known = {(point.file, point.guard.place, point.guarded) for point in told}
    return [*told, *(p for p in points if (p.file, p.guard.place, p.guarded) not in known)]


def _is_known(point: BranchPoint) -> bool:
    return point.differs or point.rank_like or point.both_arms


def came_to_handler(case: Case, tried: BranchPoint, sides: tuple[Stack, Stack], ranks: SideRanks) -> bool:
    """True if side 0 alone has written what only a handler of that `try` writes."""
    if not case.job.written:
        return False
    return any(_is_other_arm(case.sources, tried, each) for each in _written(case, sides, ranks, 0))


def _written(case: Case, sides: tuple[Stack, Stack], ranks: SideRanks, side: int) -> list[WrittenUnder]:
    if not all(ranks):
        return []
    return written_under(case.sources, case.job.written, sides, ranks[side], ranks[1 - side])


def _is_other_arm(sources: Sources, point: BranchPoint, written: WrittenUnder) -> bool:
    """True if who wrote went the other way at the condition; of a `try:`, if it came to one of its handlers."""
    file, line = written.condition.file, written.condition.line
    if point.file != file:
        return False
    if not point.guard.is_tried:
        return point.guard.line == line and point.guard.taken != written.taken
    tree = sources.function(file, point.guard.line)
    tries = (n for n in walk(tree) if isinstance(n, ast.Try)) if tree is not None else ()
    return any(n.lineno == point.guard.line and any(h.lineno == line for h in n.handlers) for n in tries)
