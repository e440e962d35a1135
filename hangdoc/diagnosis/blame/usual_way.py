"""Which of two sides left the way that both had always taken: the one that alone has run what skips the call.

Example: ranks 0 and 1 make a call in each round of `for x in loader: ⏎ if not finite(x): ⏎ bad += 1 ⏎ continue`, now
rank 1 is in the barrier after the loop, and it alone has run `bad += 1` → rank 1.
"""

from __future__ import annotations

from collections.abc import Sequence

from hangdoc.diagnosis.calls.alignment import Alignment
from hangdoc.diagnosis.condition.branch_point import BranchPoint
from hangdoc.diagnosis.condition.elsewhere.left_behind import LeftBehind
from hangdoc.diagnosis.condition.elsewhere.ran_alone import ran_alone
from hangdoc.diagnosis.condition.loops.round_or_loop import skips_of
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.stacks import user_stack


def left_usual_way(case: Case, alignment: Alignment, points: Sequence[BranchPoint]) -> BranchPoint | None:
    """The condition by which the culprits alone have skipped the call that they lack, and which they had made before by
    the interpreters' counters; None where the others have been in any of ``points`` alone."""
    gap, culprits = alignment.first, alignment.culprits
    others = tuple(sorted(case.seen - set(culprits)))
    frame = next(iter(user_stack(gap.theirs.stack)), None) if gap is not None and gap.theirs is not None else None
    if not case.table or not points or frame is None or gap is None or gap.kind != "insert" or not others:
        return None
    if case.table.split(culprits, frame.file, frame.line).ran != culprits:
        return None
    alone = {(each.file, each.guard.line): each.side for each in ran_alone(case, (culprits, others))}
    if any(alone.get((point.file, point.guard.line)) == 1 for point in points):
        return None
    skips = skips_of(case.sources, points) if points[0].uneven else points[:1]
    return next((point for point in skips if alone.get((point.file, point.guard.line)) == 0), None)


def alone_by_lines(case: Case, alignment: Alignment) -> LeftBehind | None:
    """What the culprits alone have run, of all ranks, where they are the fewer and both sides wait below one line of
    the user's; None where the others, too, have run lines that the culprits have not.

    Example: all ranks are in `sync.step()`, which counts its calls, and rank 2 alone has run the `continue` before it.
    """
    gap, culprits = alignment.first, alignment.culprits
    others = tuple(sorted(case.seen - set(culprits)))
    if gap is None or gap.mine is None or gap.theirs is None or len(culprits) >= len(others):
        return None
    lines = [[(f.file, f.line) for f in user_stack(token.stack)] for token in (gap.mine, gap.theirs)]
    if not lines[0] or lines[0] != lines[1]:
        return None
    left = ran_alone(case, (culprits, others))
    return left[0] if left and all(each.side == 0 for each in left) else None
