"""Which candidates the ranks' calls and values rule out.

Example: under `if rank == 0:`, a rank that is outside of it now has called from there before.
"""

from __future__ import annotations

from hangdoc.diagnosis.calls.alignment import Gap
from hangdoc.diagnosis.calls.history import Token, distinct
from hangdoc.diagnosis.condition.branch_point import BranchPoint
from hangdoc.diagnosis.condition.loops.ended_by_exception import fell_out
from hangdoc.diagnosis.condition.loops.executions import is_inside
from hangdoc.diagnosis.condition.loops.loop_counts import (
    goes_round_alike,
    is_over_own_parts,
    left_early,
)
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.landmarks import is_within_reduction, plain
from hangdoc.diagnosis.source.evaluate import test_at
from hangdoc.diagnosis.source.guards import CONDITIONS
from hangdoc.diagnosis.source.values import SideRanks, equals_rank
from hangdoc.model.kinds import ActivityKind


def can_explain(case: Case, gap: Gap, point: BranchPoint, ranks: SideRanks) -> bool:
    """False where the ranks' own calls contradict the guard.

    Example: under `if rank == 0:`, the ranks outside of it now have called from there before → False.
    """
    left = 1 - point.guarded
    if point.guard.kind == "decorator" and not point.rank_like:
        return has_been_there(case, point, ranks[left])  # else there was no cached result
    if not point.uneven:
        return not (point.always and has_been_there(case, point, ranks[left]))
    # An exception may have led out of it, or the difference is elsewhere.
    if goes_round_alike(case, point) or is_over_own_parts(case, point):
        return fell_out(case, point, ranks[left], (gap.mine, gap.theirs)[left])
    token = (gap.mine, gap.theirs)[point.guarded]
    if point.of_library and token is not None and is_within_reduction(token.stack, point.file, point.line):
        return False
    if point.of_library and point.guarded == 0 and gap.kind == "insert" and not _went_round(case, gap.mine, point):
        return False
    # At the end of the culprits' calls, one too many and some too few look the same; a part of the others may have
    # gone on, as the root of a broadcast does.
    waiting = gap.mine is not None and gap.theirs is not None and gap.mine.pending
    # If a call is missing on the culprits, they are not in a further round of the loop.
    if not waiting and (gap.kind == "insert") != (point.guarded == 1) and not _took_a_later_call(gap, point):
        return False
    return left_early(case, point, ranks, (gap.mine, gap.theirs))


def _took_a_later_call(gap: Gap, loop: BranchPoint) -> bool:
    """True if the culprits' call of a further round was paired with one like it that the others make after the loop:
    which of the two is missing, and which one too many, cannot be told then.

    Example: `for batch in feed: ⏎ all_reduce(loss)` and `all_reduce(seen)` after it, by whose numbers they are equal.
    """
    mine, theirs = gap.mine, gap.theirs
    if loop.guarded != 0 or mine is None or theirs is None or mine.op != theirs.op:
        return False
    return is_inside(mine, loop) and not is_inside(theirs, loop)


def _went_round(case: Case, token: Token | None, loop: BranchPoint) -> bool:
    """False if the token is the first call that its rank made in this execution of the loop."""
    before = _previous(case, token)
    return before is None or is_inside(before, loop)


def is_contradicted(case: Case, point: BranchPoint, ranks: SideRanks) -> bool:
    """True if the condition tests the rank alone, which does not change, and by the values seen it went the other way
    on a rank under it, or the same way on all ranks outside of it.

    Examples: `if rank:`, rank = 1 on one side and 2 on the other → True; `if rank == 0:` above rank 2 → True.
    """
    tree = case.sources.function(point.file, point.guard.line)
    if tree is None or point.guard.kind not in (*CONDITIONS, "return") or not point.guard.names:
        return False
    values = {name: case.values.of(point.file, point.function, name) for name in point.guard.names}
    if not (point.always or all(map(equals_rank, values.values()))):
        return False
    test = test_at(tree, point.guard.line)
    if test is None:
        return False
    under, outside = (
        {*case.values.truths(point.file, point.function, test, side).values()}
        for side in (ranks[point.guarded], ranks[1 - point.guarded])
    )
    return (not point.guard.taken) in under or outside == {point.guard.taken}


def has_been_there(case: Case, point: BranchPoint, ranks: tuple[int, ...]) -> bool:
    """True if these ranks, too, have called from the line under the guard: then no condition on the rank decides it."""
    programs = {rank: case.programs[rank] for rank in ranks if rank in case.programs}
    issued_from = [stack for program, _ in distinct(programs) for stack in program.recording.issued_from]
    now = [case.activities[rank].stack for rank in ranks if case.activities[rank].kind == ActivityKind.STORE_WAIT]
    return any(
        frame.file == point.file and frame.line == point.line and plain(frame.function) == point.function
        for stack in (*issued_from, *now)
        for frame in stack
    )


def _previous(case: Case, token: Token | None) -> Token | None:
    """The call that the token's rank made just before it; None where there is none, or it is unknown."""
    program = case.programs.get(token.rank) if token is not None else None
    if token is None or program is None or not 0 < token.order <= len(program.journal.calls):
        return None  # the end of a program has an order, too, though it may have made no call at all
    return program.token(token.order - 1)
