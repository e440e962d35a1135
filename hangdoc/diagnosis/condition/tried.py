"""Could an exception have led the culprits out of a try body that the others are in?"""

from __future__ import annotations

from collections.abc import Sequence

from hangdoc.diagnosis.condition.branch_point import BranchPoint
from hangdoc.diagnosis.condition.told import came_to_handler
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.source.queries import works_before
from hangdoc.diagnosis.source.syntax import enclosing_function
from hangdoc.diagnosis.source.values import SideRanks
from hangdoc.model.process import Stack


def can_have_been_in_try(
    case: Case,
    point: BranchPoint,
    points: Sequence[BranchPoint],
    sides: tuple[Stack, Stack],
    ranks: SideRanks,
) -> bool:
    """False for a try body that the culprits can't have been in: no exception leads out of it then.

    They were in it if their stack still has its function, or if they left a loop there. They may have been if the body
    calls something before the missing call. Where none of their calls were seen, or they wrote what a handler writes,
    what the body calls on the way there counts as well.
    """
    tree = case.sources.function(point.file, point.line)
    return (
        (tree is not None and works_before(tree, point.guard.line, point.line))
        or any(f.file == point.file and plain(f.function) == point.function for f in sides[0])
        or any(p.uneven and (p.file, p.function) == (point.file, point.function) for p in points)
        or (
            (case.programs.keys().isdisjoint(ranks[0]) or came_to_handler(case, point, sides, ranks))
            and _works_further_in(case, point, sides[1])
        )
    )


def _works_further_in(case: Case, point: BranchPoint, theirs: Stack) -> bool:
    """True if a function that the try body called, in which the others are, calls something before they came to their
    line. Example: `try: ⏎ return step(batch)`, and step() makes the targets before its backward()."""
    way = user_stack(theirs)
    at = next((i for i, f in enumerate(way) if (f.file, f.line) == (point.file, point.line)), 0)
    for frame in way[:at]:
        tree = case.sources.function(frame.file, frame.line)
        called = enclosing_function(tree, frame.line) if tree is not None else None
        if called is not None and works_before(called, getattr(called, "lineno", 0), frame.line):
            return True
    return False
