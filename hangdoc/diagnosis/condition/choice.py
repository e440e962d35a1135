"""The guards that can explain a divergence, given what the ranks did before and can still do."""

from __future__ import annotations

from collections.abc import Sequence

from hangdoc.diagnosis.calls.alignment import Alignment, Gap
from hangdoc.diagnosis.calls.history import Token, distinct
from hangdoc.diagnosis.condition.candidates import (
    BranchPoint,
    caught_outside,
    diverging_guards,
    guards_of_last_round,
)
from hangdoc.diagnosis.condition.divergence_point import is_own, next_call_pairs
from hangdoc.diagnosis.condition.loop_counts import began_same_round, fell_out, goes_round_alike, is_inside, left_early
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.frames.library import is_library
from hangdoc.diagnosis.source.guards import CONDITIONS
from hangdoc.diagnosis.source.queries import ways_out, works_before
from hangdoc.model.process import Stack


def branch_points_of(case: Case, alignment: Alignment) -> list[BranchPoint]:
    """The guards at which the culprits (side 0) can have diverged from the others (side 1), the likeliest first."""
    gap = alignment.first
    if gap is None or (alignment.history.inferred and _awaited(gap)):
        return []
    culprits, others = alignment.culprits, others_in(alignment)
    if is_own(gap):
        # The condition that chooses between the arms is not the reason; an exception that kept the rank from its own
        # arm may be.
        sides = (stack_of(case, gap.mine, culprits), gap.token.stack)
        found = diverging_guards(case.sources, case.values, sides, (culprits, culprits))
        return [p for p in found if p.guard.kind == "try"]
    sides = (stack_of(case, gap.mine, culprits), stack_of(case, gap.theirs, others))
    found = diverging_guards(case.sources, case.values, sides, (culprits, others))
    possible = [
        p
        for p in found
        if _can_explain(case, gap, p, (culprits, others))
        and (p.guarded == 0 or _could_be_thrown_out(case, p, found, sides[0]) or _came_from_within(case, gap, p))
    ]
    if gap.kind == "delete" and next_call_pairs(alignment, gap):
        possible = [p for p in possible if p.guarded == 0]  # nothing keeps the culprits from their next call
    if gap.kind == "insert":
        earlier = guards_of_last_round(case.sources, sides)
        left = [p for p in earlier if p.uneven and _left_in_turn(case, gap, p, (culprits, others))]
        possible = sorted(possible + left, key=lambda p: -p.score)
        possible = possible or caught_outside(case.sources, sides) or [p for p in earlier if not p.uneven]
    return _skipped_round_first(case, alignment, gap, _condition_before_empty_loop(case, gap, possible))


def _skipped_round_first(case: Case, alignment: Alignment, gap: Gap, possible: list[BranchPoint]) -> list[BranchPoint]:
    """``possible`` with a condition inside the loop first, where the loop itself went round as often as ever.

    Example: [`for batch in loader`, `if loss.isnan(): continue` inside it], and both sides in the same round → the
    `if` first.
    """
    skipped = skipped_round(possible) if possible and possible[0].uneven else None
    if skipped is None:
        return possible
    better = (
        gap.past
        or skipped.guard.kind == "decorator"  # a cached result skips the call in some rounds
        or goes_round_alike(case, possible[0])
        or _is_in_its_round(case, gap, possible[0], skipped, alignment)
    )
    return [skipped, *(p for p in possible if p is not skipped)] if better else possible


def _condition_before_empty_loop(case: Case, gap: Gap, possible: list[BranchPoint]) -> list[BranchPoint]:
    """``possible`` with the conditions in front of the loop first, where the culprits made no call in the loop.

    Then a condition more likely kept them from the loop than that they finished it without a call.
    """
    token = gap.mine
    loop = possible[0] if possible and possible[0].uneven and possible[0].guarded == 1 else None
    if loop is None or token is None or token.order < 1 or token.rank not in case.programs:
        return possible
    if is_inside(case.programs[token.rank].token(token.order - 1), loop):
        return possible
    at = (loop.level, loop.guard.line)
    conditions = [p for p in possible if p.guard.kind in CONDITIONS and p.guarded == 1]
    before = [p for p in conditions if (p.level, p.guard.line) < at]
    return [*before, *(p for p in possible if p not in before)]


def _left_in_turn(case: Case, gap: Gap, loop: BranchPoint, sides: tuple[tuple[int, ...], tuple[int, ...]]) -> bool:
    """True if the culprits' previous call was made at the others' line, so that they were in the loop before."""
    if gap.mine is None or gap.theirs is None or gap.mine.order < 1 or gap.mine.rank not in case.programs:
        return False
    before = case.programs[gap.mine.rank].token(gap.mine.order - 1)
    return before.site == gap.theirs.site and _can_explain(case, gap, loop, sides)


def _is_in_its_round(case: Case, gap: Gap, loop: BranchPoint, skipped: BranchPoint, alignment: Alignment) -> bool:
    """True if the ranks outside had begun the round, and the condition skips the call without leaving the loop."""
    sides = (alignment.culprits, others_in(alignment))
    tree = case.sources.function(loop.file, loop.guard.line)
    out = {line for line, _ in ways_out(tree, loop.guard.line)} if tree is not None else set()
    within = (skipped.file, skipped.function) == (loop.file, loop.function)
    leaves = within and skipped.guard.line in out
    return not leaves and began_same_round(case, loop, sides[1 - loop.guarded], (gap.mine, gap.theirs))


def skipped_round(points: Sequence[BranchPoint]) -> BranchPoint | None:
    """A condition on the way to the call inside the loop ``points[0]``; None where there is none.

    One round without the call looks just like one round less.
    """
    loop = points[0]
    first, last = loop.guard.span
    inside = (p for p in points if p.guarded == loop.guarded and p.guard.kind in _SKIPS)
    return next(
        (p for p in inside if p.level > loop.level or (p.level == loop.level and first < p.guard.line <= last)), None
    )


def also_on_the_way(points: Sequence[BranchPoint]) -> list[BranchPoint]:
    """Further conditions around the same call that would explain the divergence as well as the first one does."""
    if not points:
        return []
    first, *more = points
    if first.guard.kind not in CONDITIONS or first.rank_like or first.differs or first.both_arms:
        return []
    shown = {(first.file, first.guard.place): first}
    for other in more:
        if other.guarded == first.guarded and other.guard.kind in CONDITIONS:
            shown.setdefault((other.file, other.guard.place), other)
    return list(shown.values())[1:_MOST_CONDITIONS]


_MOST_CONDITIONS = 3
"""In one report, the first included; chosen by hand: a longer list helps nobody."""
_SKIPS = ("if", "return", "try", "expression", "decorator")


def _could_be_thrown_out(case: Case, point: BranchPoint, points: Sequence[BranchPoint], culprits: Stack) -> bool:
    """False for a try body that the culprits can't have been in: no exception leads out of it then.

    They were in it if their stack still has its function, or if they left a loop there. They may have been if the body
    calls something before the missing call.
    """
    if not point.guard.is_tried:
        return True
    tree = case.sources.function(point.file, point.line)
    return (
        (tree is not None and works_before(tree, point.guard.line, point.line))
        or any(f.file == point.file and plain(f.function) == point.function for f in culprits)
        or any(p.uneven and (p.file, p.function) == (point.file, point.function) for p in points)
    )


def _came_from_within(case: Case, gap: Gap, point: BranchPoint) -> bool:
    """True if both sides made their previous call from the body of the same try."""
    before = [
        case.programs[token.rank].token(token.order - 1)
        for token in (gap.mine, gap.theirs)
        if token is not None and token.order > 0 and token.rank in case.programs
    ]
    return len(before) == 2 and all(is_inside(token, point) for token in before)


def _awaited(gap: Gap) -> bool:
    """True if a side waits for an asynchronous call: its line is then not the line that issued the call."""
    return any(token is not None and token.stack and not is_library(token.stack[0]) for token in (gap.mine, gap.theirs))


def _can_explain(case: Case, gap: Gap, point: BranchPoint, sides: tuple[tuple[int, ...], tuple[int, ...]]) -> bool:
    """False where the ranks' own calls contradict the guard. ``sides[0]`` are the culprits, ``sides[1]`` the others."""
    if point.guard.kind == "decorator" and not point.rank_like:
        return _has_been_there(case, point, sides[1 - point.guarded])  # else there was no cached result
    if not point.uneven:
        return not (point.always and _has_been_there(case, point, sides[1 - point.guarded]))
    if goes_round_alike(case, point):
        left = 1 - point.guarded  # an exception may have led out of it, or the difference lies elsewhere
        return fell_out(case, point, sides[left], (gap.mine, gap.theirs)[left])
    waiting = gap.mine is not None and gap.theirs is not None and gap.mine.pending and gap.theirs.pending
    # A call that is missing here is no further round of ours.
    if not waiting and (gap.kind == "insert") != (point.guarded == 1):
        return False
    return left_early(case, point, sides, (gap.mine, gap.theirs))


def _has_been_there(case: Case, point: BranchPoint, ranks: tuple[int, ...]) -> bool:
    """True if these ranks, too, have called from the line under the guard: then no condition on the rank decides it."""
    programs = {rank: case.programs[rank] for rank in ranks if rank in case.programs}
    return any(
        frame.file == point.file and frame.line == point.line and plain(frame.function) == point.function
        for program, _ in distinct(programs)
        for stack in program.recording.issued_from
        for frame in stack
    )


def others_in(alignment: Alignment) -> tuple[int, ...]:
    """The members of its group that the repair does not change."""
    culprits = frozenset(alignment.culprits)
    return tuple(r for r in alignment.history.members if r not in culprits)


def stack_of(case: Case, token: Token | None, ranks: tuple[int, ...]) -> Stack:
    """The stack of a side: of its call, or of what it does now where it has issued nothing."""
    if token is not None and token.stack:
        return token.stack
    return next((case.activities[r].stack for r in ranks if r in case.activities), ())
