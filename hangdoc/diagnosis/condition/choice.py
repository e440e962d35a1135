"""The choice: which of the candidates explain the divergence, and the likeliest of them first.

``candidates`` looks at two stacks alone. Here the ranks' calls are asked, too: a candidate is dropped if they
contradict it (``possible``), and the order is changed where they favor another one. Example: side 0 waits at the
barrier after `for batch in loader:`, side 1 in the all_reduce of `if batch.ok:` inside that loop. The loop is the
likelier candidate, as side 0 has left it. If side 0 left the loop after as many calls as in every epoch before, the
loop is dropped; if side 0's last call in it belongs to the round that side 1 is in, the `if` comes first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hangdoc.diagnosis.bounds import LISTED, TRIED
from hangdoc.diagnosis.calls.alignment import Alignment, Gap
from hangdoc.diagnosis.calls.history import END, Token
from hangdoc.diagnosis.condition.branch_point import BranchPoint
from hangdoc.diagnosis.condition.candidates import diverging_guards
from hangdoc.diagnosis.condition.decided_by_rank import goes_by_rank, rank_decided_first
from hangdoc.diagnosis.condition.divergence_point import is_own, next_call_pairs
from hangdoc.diagnosis.condition.elsewhere.led_block import entered_later
from hangdoc.diagnosis.condition.elsewhere.other_arm import in_chosen_beside, in_other_arm
from hangdoc.diagnosis.condition.last_round import (
    caught_outside,
    guards_of_last_round,
    is_in_later_round,
    left_by_those_ahead,
    retried,
    skipped_when_called_before,
)
from hangdoc.diagnosis.condition.loops.counted import skipping_before_counting
from hangdoc.diagnosis.condition.loops.executions import is_inside
from hangdoc.diagnosis.condition.loops.inner_loop_left import inner_loop_left, left_further_in
from hangdoc.diagnosis.condition.loops.loop_counts import calls_what_it_holds, left_early
from hangdoc.diagnosis.condition.loops.ran_to_its_end import ran_to_its_end
from hangdoc.diagnosis.condition.loops.round_or_loop import others_in, skipped_round_first
from hangdoc.diagnosis.condition.possible import (
    _previous,
    can_explain,
    has_been_there,
    is_contradicted,
    is_possible,
    went_to_lookup,
)
from hangdoc.diagnosis.condition.rounds_ahead import is_further_on
from hangdoc.diagnosis.condition.scored import tests_item
from hangdoc.diagnosis.condition.tested import FITS, SEEN, as_recorded, by_what_ran, decided
from hangdoc.diagnosis.condition.told import by_what_was_written
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.execution.decisions import condition_key
from hangdoc.diagnosis.execution.parting import Parting
from hangdoc.diagnosis.frames.library import is_library
from hangdoc.diagnosis.frames.stacks import lines_of, site_of, user_stack
from hangdoc.diagnosis.source.guards import CONDITIONS
from hangdoc.diagnosis.source.values import SideRanks
from hangdoc.diagnosis.state.endings import ended_well
from hangdoc.model.process import Stack

_DECIDE = (*CONDITIONS, "match")
"""Kinds of guards of which one alone, or any of several, may have decided."""


def branch_points_of(case: Case, alignment: Alignment) -> list[BranchPoint]:
    """The guards at which the culprits (side 0) can have diverged from the others (side 1), the likeliest first: the
    one at which they were seen to, where their tests were recorded.

    Example: rank 1 skipped `if step % 10 == 0: dist.barrier()`, in which rank 0 waits → the `if`.
    """
    ranks = (alignment.culprits, others_in(alignment))
    gap = alignment.first
    if gap is None:
        return []
    stacks = stack_of(case, gap.mine, ranks[0]), stack_of(case, gap.theirs, ranks[1])
    # Of several culprits, the one that stands for the call: who has gone on from it has decided more since.
    first = gap.mine.rank if gap.mine is not None else min(ranks[0], default=0)
    parting = case.execution.parting(sorted(ranks[0], key=lambda rank: (rank != first, rank)), ranks[1])
    if parting is not None and not any(site_of(parting.stack) == site_of(stack) for stack in stacks):
        parting = None  # they have parted there as well, and not before this call
    if parting is not None and _is_of_an_earlier_round(case, parting, ranks):
        parting = None
    found = parting or case.execution.once(stacks, *ranks)
    possible = [p for p in _possible(case, alignment) if not case.execution.refutes(p.file, p.guard, ranks)]
    return as_recorded(case, found, possible, ranks)


def _is_of_an_earlier_round(case: Case, parting: Parting, ranks: SideRanks) -> bool:
    """True if the side that came under the guard then has not the last time, and another one has.

    Example: rank 2 averaged under `if updates % 8 == 0:` a step later than the others, who do so again by now → True.
    """
    key = condition_key(parting.frame.file, parting.guard.line, parting.guard.condition)
    own, others = ([case.execution.decided(rank, key) for rank in ranks[n]] for n in (parting.side, 1 - parting.side))
    so = str(parting.guard.taken)
    return all(each is not None and each[1] not in ("", so) for each in own) and any(
        each is not None and each[1] == so for each in others
    )


def _possible(case: Case, alignment: Alignment) -> list[BranchPoint]:
    """The same, by what stacks, calls, values and counters say."""
    gap = alignment.first
    if gap is None or (alignment.history.inferred and _awaited(gap)):
        return []
    if entered_later(case.sources, gap) is not None:
        return []  # the others have come to nothing in that block
    ranks = (alignment.culprits, others_in(alignment))
    if is_own(gap):
        return _around_both_arms(case, gap, ranks)
    sides = (
        stack_of(case, gap.mine, ranks[0]) + case.waiting_for(gap.mine),
        stack_of(case, gap.theirs, ranks[1]) + case.waiting_for(gap.theirs),
    )
    waiting = _is_there_now(case, gap.mine) and _is_there_now(case, gap.theirs)
    ended = gap.theirs is not None and gap.theirs.op == END and all(ended_well(case.ranks[rank]) for rank in ranks[1])
    found = diverging_guards(case.sources, case.values, sides, ranks, now=waiting, ended=ended)
    if alignment.history.inferred and gap.kind == "insert" and gap.mine is not None and gap.theirs is not None:
        later = is_in_later_round(case, gap.mine.rank, gap.theirs.rank)
        if later:
            found = [p for p in found if p.guarded == 1] or skipped_when_called_before(case.sources, sides)
    possible = [p for p in found if is_possible(case, gap, p, found, sides, ranks)]
    if gap.kind == "delete" and next_call_pairs(alignment, gap):
        possible = [p for p in possible if p.guarded == 0]  # nothing keeps the culprits from their next call
    if gap.kind == "insert":
        possible = _with_last_round(case, gap, possible, sides, ranks)
    elif not possible and _began_again(case, gap):
        possible = retried(case.sources, sides)
    if alignment.history.inferred:
        now = case.activities.get(gap.theirs.rank) if gap.theirs is not None else None
        possible = _other_arm_first(case, possible, now.stack if now is not None else sides[1])
    possible = inner_loop_left(case, (gap.mine, gap.theirs), possible, sides, ranks)
    possible = _innermost_of_library_first(_finally_after_returns(case, possible, ranks))
    possible = left_further_in(case, possible)
    possible = _condition_before_empty_loop(case, gap, skipping_before_counting(case, possible, ranks))
    possible = [p for p in skipped_round_first(case, alignment, gap, possible) if not p.even]
    possible = [p for p in possible if not ran_to_its_end(case, p, ranks)]
    possible = rank_decided_first(case.sources, possible, lambda p: has_been_there(case, p, ranks[1 - p.guarded]))
    possible = [p for p in possible if not went_to_lookup(case, p, sides, ranks)]
    possible = by_what_ran(case.sources, case.table, possible, ranks)
    if not possible and waiting and gap.mine is not None and gap.theirs is not None:
        possible = left_by_those_ahead(case, sides, gap.mine.rank, gap.theirs.rank)
        possible = [p for p in possible if can_explain(case, gap, p, ranks)]
    return by_what_was_written(case, possible, sides, ranks)


def stack_of(case: Case, token: Token | None, ranks: tuple[int, ...]) -> Stack:
    """The stack of a side: of its call, or of what it does now where it has issued nothing."""
    if token is not None and token.stack:
        return token.stack
    return next((case.activities[r].stack for r in ranks if r in case.activities), ())


def _is_there_now(case: Case, token: Token | None) -> bool:
    """True if the rank is still at the line from which it issued the call, so that its values are those of that call.

    Example: an all_reduce with async_op=True, issued at line 5, whose rank waits at line 9 → False.
    """
    activity = case.activities.get(token.rank) if token is not None and token.pending else None
    if token is None or activity is None:
        return False
    lines = [[(frame.file, frame.line) for frame in user_stack(stack)] for stack in (token.stack, activity.stack)]
    return bool(lines[0]) and lines[0] == lines[1]


def on_own_way(case: Case, sides: tuple[Stack, Stack], ranks: SideRanks) -> list[BranchPoint]:
    """The conditions that side 0 has passed on its way to where it is now and side 1 need not have, the likeliest
    first. What both sides are seen to test alike is none of them, nor is a constant.

    Unlike the guards of a divergence they are certain: the stack is under them. Example: side 0 waits in what `if
    self.written > limit:` calls, side 1 in the all_reduce → that `if`.
    """
    found = [p for p in diverging_guards(case.sources, case.values, sides, ranks) if p.guarded == 0]
    found = [p for p in found if p.guard.kind in _DECIDE or _is_handler(p)]
    found = [p for p in found if not (p.of_library or p.made or p.registered or p.quiet)]
    found = [p for p in found if not p.alike and p.score > 0 and not is_contradicted(case, p, ranks)]
    return [p for p in found if _may_differ(case, p, ranks)]


def _is_handler(point: BranchPoint) -> bool:
    """True for an `except` suite that the guarded side is in."""
    guard = point.guard
    return guard.kind == "try" and guard.taken and not guard.is_tried and guard.condition != "finally:"


def _may_differ(case: Case, point: BranchPoint, ranks: SideRanks) -> bool:
    """False for a test of constants alone, and for an earlier `if …: return` of which nothing says that it differs: it
    tests no item of a loop, and no rank of side 1 is known to have always taken it."""
    if point.rank_like or point.differs or _is_handler(point):
        return True
    if point.guard.kind != "return":
        return not all(name.isupper() or name == "__name__" for name in point.guard.names)
    if tests_item(case.sources, point.guard, point.file):
        return True
    under = ranks[point.guarded]
    others = ((rank,) for rank in ranks[1 - point.guarded])
    found = (decided(case.table, point.file, point.guard, under=under, others=each) for each in others)
    return any(how in (SEEN, FITS) for how in found)


def also_on_the_way(points: Sequence[BranchPoint]) -> list[BranchPoint]:
    """Further conditions around the same call that would explain the divergence as well as the first one does.

    Example: `if warm:` and in it `if ready:`, no value of which was seen → the second of them.
    """
    if not points:
        return []
    first, *more = points
    if (
        first.guard.kind not in _DECIDE
        or first.rank_like
        or first.differs
        or first.both_arms
        or first.seen
        or first.told
    ):
        return []
    shown = {(first.file, first.guard.place): first}
    for other in more:
        if other.guarded == first.guarded and other.guard.kind in _DECIDE:
            shown.setdefault((other.file, other.guard.place), other)
    return list(shown.values())[1:LISTED]


def _awaited(gap: Gap) -> bool:
    """True if a side waits for an asynchronous call: its line is then not the line that issued the call."""
    return any(token is not None and token.stack and not is_library(token.stack[0]) for token in (gap.mine, gap.theirs))


def _around_both_arms(case: Case, gap: Gap, ranks: SideRanks) -> list[BranchPoint]:
    """What can have kept the culprits from the call in their own arm of a condition: what is around it in that arm, and
    what leads to the arms of both sides.

    The condition that chooses between the arms is not the reason, since the other arm has such a call as well.
    Examples: of `if not fresh: ⏎ if main: barrier() ⏎ else: barrier()` → `if not fresh:`; of `if main: lead() ⏎ else:
    follow()`, in which rank 0 has left lead() and its `while busy:` → that loop.
    """
    mine = stack_of(case, gap.mine, ranks[0])
    own = diverging_guards(case.sources, case.values, (mine, gap.token.stack), (ranks[0], ranks[0]))
    theirs = gap.theirs.stack if gap.theirs is not None else ()
    both = {_identity(p) for p in diverging_guards(case.sources, case.values, (mine, gap.token.stack), ranks)}
    around = diverging_guards(case.sources, case.values, (mine, theirs), ranks)
    conditions = [p for p in around if _identity(p) in both and not p.uneven and can_explain(case, gap, p, ranks)]
    choosing = {(p.file, p.guard.place) for p in around}
    own = [p for p in own if p.guard.kind == "try" or (p.file, p.guard.place) not in choosing]
    own = [p for p in own if p.guard.kind == "try" or _decided_in_own_arm(case, gap, p, ranks[0])]
    own = [replace(p, own_arm=p.guard.kind != "try") for p in own]
    return own + [p for p in conditions if p.guard.kind != "try"]


def _decided_in_own_arm(case: Case, gap: Gap, point: BranchPoint, culprits: tuple[int, ...]) -> bool:
    """True for a guard around the culprits' own call of which neither their rank nor their calls say that it is always
    passed alike."""
    if point.guarded == 0 or point.rank_like:
        return False
    return not point.uneven or left_early(case, point, (culprits, culprits), (gap.mine, gap.token))


def _identity(point: BranchPoint) -> tuple[str, tuple[int, str], bool, int]:
    return point.file, point.guard.place, point.guard.taken, point.guarded


# Which candidates are dropped


# Which are added, and which come first


def _with_last_round(
    case: Case, gap: Gap, possible: list[BranchPoint], sides: tuple[Stack, Stack], ranks: SideRanks
) -> list[BranchPoint]:
    """``possible`` with the loops that the culprits left in their last round; if there is none, what else it decided.

    Example: the culprits have begun the next step, the others are still in `for part in parts:` of the step before →
    that loop.
    """
    earlier = guards_of_last_round(case.sources, sides)
    ahead = not possible and _is_ahead(case, gap, ranks)
    left = [p for p in earlier if p.uneven and (ahead or _had_been_in_loop(case, gap, p))]
    left = [p for p in left if can_explain(case, gap, p, ranks)]
    left = [p for p in left if not calls_what_it_holds(case, p)] or left  # what is called is equally many in each round
    possible = sorted(possible + left, key=lambda p: -p.score)
    return possible or caught_outside(case.sources, sides) or [p for p in earlier if not p.uneven]


def _began_again(case: Case, gap: Gap) -> bool:
    """True if the culprits' extra call is one that they had made just before, or one before that in its function: they
    have started the function anew. Example: publish() makes the calls at 1 and at 2, and they called 1 and then 1."""
    before = _previous(case, gap.mine)
    ways = [user_stack(token.stack) for token in (gap.mine, before) if token is not None]
    if len(ways) < 2 or not all(ways):
        return False
    (now, *outer), (last, *others) = ways
    same = [(f.file, f.line) for f in outer] == [(f.file, f.line) for f in others]
    return same and (now.file, now.function) == (last.file, last.function) and (now.line or 0) <= (last.line or 0)


def _is_ahead(case: Case, gap: Gap, ranks: SideRanks) -> bool:
    """True if no call was recorded, and what counts the rounds shows all culprits in a later one than all others."""
    if case.has_history or gap.mine is None or gap.theirs is None:
        return False
    mine, theirs = ([replace(t, rank=r) for r in side] for t, side in zip((gap.mine, gap.theirs), ranks, strict=True))
    return is_further_on(case, mine, theirs)


def _had_been_in_loop(case: Case, gap: Gap, loop: BranchPoint) -> bool:
    """True if the culprits made their previous call at the others' line, or elsewhere in the loop, so that they left
    the loop after that."""
    before = _previous(case, gap.mine)
    if before is None or gap.theirs is None:
        return False
    return lines_of(before.site) == lines_of(gap.theirs.site) or is_inside(before, loop)


def _finally_after_returns(case: Case, possible: list[BranchPoint], ranks: SideRanks) -> list[BranchPoint]:
    """``possible`` with the conditions before it of a return that the others did not take, where it begins with a
    `finally:` for which no exception was seen: a return leads there as well.

    Example: [`finally:`, `if not self.files:` with a `return` in what the `try` calls] → the `if` first.
    """
    first = possible[0] if possible else None
    if first is None or first.guard.condition != "finally:" or any(_handles(case, r) for r in ranks[first.guarded]):
        return possible
    returns = [p for p in possible if p.guard.kind == "return" and p.guarded != first.guarded and not p.of_library]
    return [*returns, *(p for p in possible if p not in returns)]


def _handles(case: Case, rank: int) -> bool:
    journal = case.ranks[rank].journal if rank in case.ranks else None
    return journal is not None and bool(journal.handled)


def _other_arm_first(case: Case, possible: list[BranchPoint], theirs: Stack) -> list[BranchPoint]:
    """``possible``, of which the first may give way to what is around the partner of the others' call, loops first.

    It does where it is a condition on the rank whose other arm makes the others' call as well, or a loop in a method
    whose object may have been another one.
    """
    first = possible[0] if possible else None
    if first is not None and first.guarded == 0 and first.rank_like and first.guard.kind in CONDITIONS:
        return possible  # what else is in one arm, the other side never came to
    if first is None or first.guarded != 1:
        return possible
    if parts := _in_own_part(case, possible, theirs):
        return parts
    if not (first.rank_like or (first.uneven and not first.of_library)):
        return possible
    if first.rank_like:
        own = in_other_arm(case.sources, first, theirs)
    elif own := in_chosen_beside(case.sources, first, theirs):
        possible = []  # what is around the others' call there, this side never came to
    own.sort(key=lambda p: not p.uneven)
    return own + [p for p in possible if not p.rank_like] if own else possible


def _in_own_part(case: Case, possible: list[BranchPoint], theirs: Stack) -> list[BranchPoint]:
    """What is around the partner of the others' call in another part, where a condition chooses parts by what the rank
    decided before, and the partner names the same group; [] where there is none.

    Example: `if role == "learner":`, with `role = layout.role(rank)`, leads to `dist.broadcast(x, 0, group=self.eval)`,
    and its `else` to another one in `while not self.solved():` → that loop.
    """
    parts = [p for p in possible if p.guarded == 1 and p.guard.kind in CONDITIONS and not p.of_library]
    for point in parts[:TRIED]:
        if not point.rank_like and goes_by_rank(case.sources, point):
            found = in_other_arm(case.sources, point, theirs, of_group=True)
            if found:
                return sorted(found, key=lambda p: not p.uneven)
    loops = [p for p in possible if p.guarded == 1 and p.uneven and not p.of_library][:TRIED]
    beside = (in_chosen_beside(case.sources, point, theirs, of_group=True) for point in loops)
    return sorted(next((found for found in beside if found), []), key=lambda p: not p.uneven)


def _innermost_of_library_first(possible: list[BranchPoint]) -> list[BranchPoint]:
    """``possible``; if it begins with a library's loop, the innermost of these that has a test of its own comes first.

    Example: [`for epoch in range(self.epochs)`, `for batch in loader`, `while True`] → `for batch in loader` first.
    """
    if not possible or not (possible[0].of_library and possible[0].uneven):
        return possible
    loops = [p for p in possible if p.of_library and p.uneven]
    first = max(loops, key=lambda p: (bool(p.guard.names), p.level, p.guard.depth))
    return [first, *(p for p in possible if p is not first)]


def _condition_before_empty_loop(case: Case, gap: Gap, possible: list[BranchPoint]) -> list[BranchPoint]:
    """``possible`` with the conditions in front of the loop first, where the culprits made no call in the loop.

    Then a condition more likely kept them from the loop than that they finished it without a call. Example:
    [`for x in xs:`, `if ready:` before it], and the culprits' previous call was made before both → the `if` first.
    """
    loop = possible[0] if possible and possible[0].uneven and possible[0].guarded == 1 else None
    before = _previous(case, gap.mine)
    if loop is None or before is None or is_inside(before, loop):
        return possible
    at = (loop.level, loop.guard.line)
    conditions = [p for p in possible if p.guard.kind in CONDITIONS and p.guarded == 1]
    first = [p for p in conditions if (p.level, p.guard.line) < at]
    return [*first, *(p for p in possible if p not in first)]
