"""Whether a call is missing on one side or one too many on the other, and which call comes later all the same."""

from __future__ import annotations

from dataclasses import replace

from hangdoc.diagnosis.blame.interrupting import was_interrupted
from hangdoc.diagnosis.calls.alignment import Alignment, Gap
from hangdoc.diagnosis.calls.exchanged import calls_from, is_one_too_many
from hangdoc.diagnosis.calls.following import always_follows, met_before
from hangdoc.diagnosis.calls.history import END, Token, distinct
from hangdoc.diagnosis.condition.branch_point import BranchPoint
from hangdoc.diagnosis.condition.choice import branch_points_of
from hangdoc.diagnosis.condition.divergence_point import is_own
from hangdoc.diagnosis.condition.elsewhere.led_block import entered_later
from hangdoc.diagnosis.condition.rounds_ahead import is_further_on
from hangdoc.diagnosis.condition.stack_comparison import common_rounds, is_past
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.landmarks import Role, has_role
from hangdoc.diagnosis.frames.library import is_library
from hangdoc.diagnosis.frames.stacks import every_frame, fork, user_stack
from hangdoc.diagnosis.source.guards import CONDITIONS, loops_around


def as_missing_or_extra(case: Case, alignment: Alignment, points: list[BranchPoint]) -> Alignment:
    """The alignment with its gap at the end of the sequences reported as a missing call, or as an extra one.

    There, 'one extra here' and 'one missing here' cost the same. The guard decides: the call under it is the odd one.
    So it does where the culprits have passed that call, and all that they issued since pairs with the others' calls.
    A call that interrupts the program, which the others' does not, is extra.
    Without a guard, a call that the others make as well, or will still reach, is not extra; the others' call is then
    missing. Example: culprits at train:9, others at train:5, no condition → train:5 is missing on the culprits.
    """
    gap = alignment.first
    if gap is None or len(alignment.gaps) > 1 or gap.mine is None or gap.theirs is None:
        return alignment
    if was_interrupted(case, gap):
        return replace(alignment, gaps=(replace(gap, kind="delete", token=gap.mine),))
    if points and points[0].guarded == 0 and _goes_on_with_theirs(alignment, gap.mine, gap.theirs):
        return replace(alignment, gaps=(replace(gap, kind="delete", token=gap.mine),))
    if not gap.mine.pending or gap.mine.order < 0 or END in (gap.mine.op, gap.theirs.op):
        return alignment
    # The others enter such a block when the culprits have left it, as they always do: these left nothing out.
    led = entered_later(case.sources, gap) is not None
    if is_own(gap) and not led:
        return alignment
    if led or not _lacks_others_call(case, alignment, gap.mine, gap.theirs, points):
        return replace(alignment, gaps=(replace(gap, kind="delete", token=gap.mine),))
    one = _came_without(case, alignment, gap.mine, gap.theirs)
    left_out = [gap.theirs] if one else _up_to(_from_there_on(alignment, gap.theirs), gap.mine)
    return replace(alignment, gaps=tuple(replace(gap, kind="insert", token=t, theirs=t) for t in left_out))


def _goes_on_with_theirs(alignment: Alignment, mine: Token, theirs: Token) -> bool:
    """True if the culprits have made calls after ``mine``, and these are the others' from ``theirs`` on.

    Example: culprits [A, X, B], others [A, B], where X met the others' B → True for that X and B.
    """
    if mine.pending or alignment.history.inferred:
        return False
    after = [t for t in alignment.history.tokens.get(mine.rank, []) if t.sequence > mine.sequence]
    there = [t for t in alignment.history.tokens.get(theirs.rank, []) if t.sequence >= theirs.sequence]
    pairs = list(zip(after, there, strict=False))
    return bool(pairs) and all((a.op, a.site, a.sizes) == (b.op, b.site, b.sizes) for a, b in pairs)


def _lacks_others_call(case: Case, alignment: Alignment, mine: Token, theirs: Token, points: list[BranchPoint]) -> bool:
    """True if the culprits left out the others' call; False if their own call, ``mine``, is one too many."""
    if alignment.first is not None and is_shared(case, alignment.first):
        return True  # others are in that very call: it is not one too many
    if _is_past_the_wait(case, mine, theirs):
        return True
    if alignment.history.inferred and is_further_on(case, [mine], [theirs]):
        return True
    if alignment.history.inferred and is_further_on(case, [theirs], [mine]):
        return False  # the others went by it
    if _came_without(case, alignment, mine, theirs):
        return True  # it came to its call without the one that was always before it
    reduces = [has_role(token.stack, Role.BACKWARD) for token in (mine, theirs)]
    if points and points[0].quiet and reduces == [False, True]:
        return True  # a round in which it did not reduce
    if has_role(mine.stack, Role.JOINED):
        return True  # its inputs have ended: what it calls now answers the others, and falls short of their call
    if points:
        return points[0].guarded == 1
    more = len(calls_from(case.programs, theirs, mine.group)) > 1
    if is_one_too_many(case.programs, mine, theirs) and (more or not _made_by_others(case, alignment, mine)):
        # The culprits go on with that very call. It may be that of their next round, unless the others go on, too.
        return False
    if is_past(case.sources, theirs.stack, mine.stack) == "certainly":
        return False  # a rank that is still before the others' call has left nothing out
    return _made_by_others(case, alignment, mine) or _went_by(case, mine, theirs)


def made_later(case: Case, alignment: Alignment, points: list[BranchPoint]) -> tuple[Gap | None, list[BranchPoint]]:
    """(the gap of a call that the culprits only make later, the conditions around it), or (None, ``points``).

    The two sides make the same two calls in swapped order, so no call is extra: a condition was true in another round.
    Example: culprits [A, B], others [B, A] → B is late on the culprits.
    """
    gap, history = alignment.first, alignment.history
    if gap is None or points or gap.kind != "delete" or gap.mine is None or gap.theirs is None or history.inferred:
        return None, points
    ours = history.at(gap.mine.rank, gap.mine.sequence + 1)
    theirs = history.at(gap.theirs.rank, gap.theirs.sequence + 1)
    if ours is None or theirs is None or (ours.site, theirs.site) != (gap.theirs.site, gap.mine.site):
        return None, points
    late = replace(gap, kind="insert", token=gap.theirs)
    found = branch_points_of(case, replace(alignment, gaps=(late,)))
    conditions = [p for p in found if p.guard.kind in CONDITIONS and p.guarded == 1]
    return (late, conditions) if conditions else (None, points)


def is_shared(case: Case, gap: Gap) -> bool:
    """True if others have issued the culprits' call as well, in another group than that of the call they lack."""
    mine, theirs = gap.mine, gap.theirs
    if mine is None or theirs is None or mine.group == theirs.group:
        return False
    history = next((h for h in case.histories if h.key == mine.group), None)
    others = [r for r in history.members if r not in gap.ranks] if history is not None else []
    calls = [history.at(rank, mine.sequence) for rank in others] if history is not None else []
    return any(t is not None and t.site == mine.site for t in calls)


def _made_by_others(case: Case, alignment: Alignment, call: Token) -> bool:
    """True if ranks that are not to blame have made such a call from the same site, or from lines where
    theirs met it the last time."""
    if met_before(alignment.history, call):
        return True
    culprits = frozenset(alignment.culprits)
    others = {r: case.programs[r] for r in alignment.history.members if r not in culprits and r in case.programs}
    alike = (call.site, call.sizes, call.dtypes)
    return any((t.site, t.sizes, t.dtypes) == alike for program, _ in distinct(others) for t in program.tokens)


def _came_without(case: Case, alignment: Alignment, mine: Token, theirs: Token) -> bool:
    """True if every rank always made ``theirs`` right before ``mine``, and the culprits have now come to it without."""
    return always_follows(alignment.history, mine, theirs) and not _may_repeat(case, mine, theirs)


def _may_repeat(case: Case, mine: Token, theirs: Token) -> bool:
    """True if something that is not around ``theirs`` may have made ``mine`` once more: a loop, or a library that runs
    it, as one that tries again does."""
    where = fork(mine.stack, theirs.stack, frames_of=every_frame)
    own = where.mine[where.common :]
    last = max((i for i, frame in enumerate(own) if not is_library(frame)), default=-1)
    beside = where.theirs[where.common].line if where.within_function is not None else 0
    for i, frame in enumerate(own[: last + 1]):
        tree = case.sources.function(frame.file, frame.line)
        if is_library(frame) or any(i or not loop.holds(beside) for loop in loops_around(tree, frame.line)):
            return True
    return not where.frames


def _up_to(calls: list[Token], mine: Token) -> list[Token]:
    """Those of the others' calls that come before the one that the culprits are in. What the others issued ahead of
    their devices, the culprits may still issue."""
    if not mine.state:
        return calls
    kinds = [(call.op, call.site, call.sizes) for call in calls]
    at = kinds.index(own) if (own := (mine.op, mine.site, mine.sizes)) in kinds else 0
    return calls[: max(1, at)]


def _from_there_on(alignment: Alignment, first: Token) -> list[Token]:
    """The others' calls in the group that the culprits have not issued: ``first`` and those after it."""
    if alignment.history.inferred:
        return [first]
    culprits = frozenset(alignment.culprits)
    others = (r for r in alignment.history.members if r not in culprits)
    longest = max((alignment.history.tokens.get(r, []) for r in others), key=len, default=[])
    return [token for token in longest if token.sequence >= first.sequence] or [first]


def _went_by(case: Case, mine: Token, theirs: Token) -> bool:
    """True if ``mine`` is past the line of ``theirs``, and its rank left out that call this time.

    In a loop around both, or without the source, the rank's previous call decides: if it was at that line, the rank
    left nothing out. Without a record of its calls the call counts as left out.
    """
    together = is_past(case.sources, mine.stack, theirs.stack)
    if together is None:
        return False
    if together == "certainly" or _in_one_round(case, mine, theirs):
        return True
    program = case.programs.get(mine.rank)
    if program is None:
        return True
    before = program.tokens[mine.order - 1] if 0 < mine.order < len(program.tokens) else None
    return before is not None and before.site != theirs.site


def _is_past_the_wait(case: Case, mine: Token, theirs: Token) -> bool:
    """True if the others' call is a helper thread's, and ``mine`` comes after where their main threads wait for it:
    its rank had come by there with no such call to wait for.

    Example: ranks 0 and 2 wait in save.result() for the thread that saves, rank 1 is in the barrier after it.
    """
    process = case.ranks[theirs.rank].process if theirs.rank in case.ranks else None
    main = process.last.main if process is not None and process.last is not None else None
    waits = main.frames if main is not None else ()
    if user_stack(theirs.stack) or not user_stack(waits):
        return False
    return is_past(case.sources, mine.stack, waits) == "certainly"


def _in_one_round(case: Case, mine: Token, theirs: Token) -> bool:
    """True if the loops' counters say that both are in the same round now; False if no counter was seen."""
    counted = common_rounds(case.sources, mine.stack, theirs.stack)
    seen = [case.values.of(*each) for each in counted]
    counts = [(per_rank.get(mine.rank), per_rank.get(theirs.rank)) for per_rank in seen]
    return bool(counts) and all(a is not None and a == b for a, b in counts)
