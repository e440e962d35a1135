"""The choice: which guards between the two sides have parted them, the likeliest first.

``candidates`` tells at which guards the two stacks leave each other, and the reasons (``reason``) how likely each test
of the program is what parted the sides. A reason is shown at the guard by which it kept them apart: itself, the loop
that goes round again by it, or the `try` that what was raised under it left.

Example: side 0 waits at the barrier after `for batch in loader:`, side 1 in the all_reduce of that loop, and
`if batch.empty: break` differs → the loop, then that `if`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from hangdoc.diagnosis.bounds import LISTED
from hangdoc.diagnosis.calls.alignment import Alignment, Gap
from hangdoc.diagnosis.calls.history import END, Token
from hangdoc.diagnosis.condition.branch_point import BranchPoint
from hangdoc.diagnosis.condition.candidates import diverging_guards
from hangdoc.diagnosis.condition.divergence_point import is_own, next_call_pairs
from hangdoc.diagnosis.condition.loops.loop_counts import left_early
from hangdoc.diagnosis.condition.loops.round_or_loop import others_in
from hangdoc.diagnosis.condition.possible import (
    can_explain,
    is_contradicted,
)
from hangdoc.diagnosis.condition.scored import tests_item
from hangdoc.diagnosis.condition.tested import FITS, SEEN, as_recorded, decided
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.execution.decisions import condition_key
from hangdoc.diagnosis.execution.parting import Parting
from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.frames.library import is_library
from hangdoc.diagnosis.frames.stacks import site_of, user_stack
from hangdoc.diagnosis.program.items import LOOPS, Predicate
from hangdoc.diagnosis.program.program import Program
from hangdoc.diagnosis.reason.judged import Reason, is_by_exception
from hangdoc.diagnosis.reason.reasons import reasons
from hangdoc.diagnosis.reason.starts import Sides, parted_at
from hangdoc.diagnosis.source.guards import CONDITIONS, guards
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
    """The same, by the reasons: of each, the likeliest first, the guards by which it kept the sides apart.

    Example: the likeliest reason is `if not torch.isfinite(loss):`, which leads out of `for image in loader:`, and one
    side has left that loop → the loop, then the `if`.
    """
    gap = alignment.first
    if gap is None or (alignment.history.inferred and _awaited(gap)):
        return []
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
    found = [p for p in found if not p.even and can_explain(case, gap, p, ranks)]
    # A guard that both came by alike, each on its way to its call, led to the odd one, or kept from the missing one.
    odd, several = int(gap.kind == "insert"), len(found) > 1
    to_it = {(p.file, p.guard.place, p.guard.taken) for p in found if p.guarded == odd}
    found = [p for p in found if p.guarded == odd or (p.file, p.guard.place, p.guard.taken) not in to_it]
    if gap.kind == "delete" and next_call_pairs(alignment, gap):
        found = [p for p in found if p.guarded == 0]  # nothing keeps the culprits from their next call
    if not found:
        return []
    both = Sides(*ranks)
    ranked = reasons(case, both, parted_at(gap, both)).reasons
    told = [point for reason in ranked for point in _shown_by(case.program, reason, found)]
    chosen = [p for p in found if p.guard.kind == "decorator"]  # it keeps the results of calls, which no test shows
    within = [p for p in found if _is_handler(p) or p.guard.condition == "finally:"]
    chosen += [replace(p, seen=True) for p in within if _handle(case, ranks[p.guarded])]
    chosen = [*chosen, *told] or [p for p in found if p.uneven or (p in within and len(found) == 1)]
    chosen = list({id(point): point for point in chosen}.values())
    return chosen if several else [replace(point, sole=True) for point in chosen]


def _handle(case: Case, ranks: tuple[int, ...]) -> bool:
    """True if all of them handle an exception, as the probes see it: where they are in a handler, it led them there."""
    journals = [case.ranks[rank].journal if rank in case.ranks else None for rank in ranks]
    return bool(journals) and all(journal is not None and journal.handled for journal in journals)


def _shown_by(program: Program, reason: Reason, found: Sequence[BranchPoint]) -> Iterator[BranchPoint]:
    """The guards at which the reason has parted the sides: the `try` that an exception left, the loop whose next round
    goes by it, the test itself, or what it led to."""
    if is_by_exception(reason):
        yield from (point for point in found if point.guard.kind == "try")
    for point in found:
        if point.uneven and _ended_by(program, reason, point):
            yield point
    for item in (reason.item, *reason.path):
        yield from (point for point in found if (point.file, point.guard.line) == (item.file, item.line))


def _ended_by(program: Program, reason: Reason, left: BranchPoint) -> bool:
    """True if by the reason the loop did not go round again."""
    function, item = program.function(left.file, left.guard.line), reason.item
    tests = function.predicates if function is not None else ()
    loop = next((test for test in tests if test.line == left.guard.line and test.kind in LOOPS), None)
    if loop is None or function is None:
        return False
    return item == loop or (isinstance(item, Predicate) and function.goes_round_by(item, loop))


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
    if first.guard.kind not in _DECIDE or first.rank_like or first.differs or first.both_arms or first.seen:
        return []
    shown = {(first.file, first.guard.place): first}
    for other in more:
        if other.guarded == first.guarded and other.guard.kind in _DECIDE:
            shown.setdefault((other.file, other.guard.place), other)
    return list(shown.values())[1:LISTED]


def both_are_under(case: Case, gap: Gap, point: BranchPoint) -> bool:
    """True if the other side made its call under the guard as well, when it came there at another time.

    Example: both are in new_group() under `if key not in self.groups:`, one for the loss and one for the audit → True.
    """
    other = (gap.mine, gap.theirs)[1 - point.guarded]
    wanted = point.guard.place, point.guard.taken
    for frame in other.stack if other is not None else ():
        if (frame.file, plain(frame.function)) != (point.file, point.function):
            continue
        tree = case.sources.function(frame.file, frame.line)
        if tree is not None and wanted in [(guard.place, guard.taken) for guard in guards(tree, frame.line)]:
            return True
    return False


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
