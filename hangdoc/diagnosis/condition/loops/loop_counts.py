"""How often each rank went round a loop, by the calls that its journal shows inside of it.

Where one side is past a loop and the other is still inside, the loop explains the divergence only if the first side
left it early. These are the questions that ``choice`` asks to find out:

``left_early``        did one side leave before the other, in the same execution of the loop?
``began_same_round``  did it begin the round that the other side is in? Then something inside the loop skipped a call.
``goes_round_alike``  does the source give every rank the same number of rounds?
``is_over_own_parts`` does a library call there what it holds, as the layers of a model or registered handlers?
``is_over_parts``     does it go over the parts of a model, whose number was the same each time before?

Example: a training loop with one all_reduce a round and a barrier after it. Rank 0 made calls [10, 10, 8] in its three
executions and waits in the barrier, rank 1 is in its 9th round: rank 0 left early. After [10, 10, 10], it did not.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from hangdoc.diagnosis.calls.history import RankProgram, Token, distinct
from hangdoc.diagnosis.calls.periods import period
from hangdoc.diagnosis.condition.branch_point import BranchPoint
from hangdoc.diagnosis.condition.loops.executions import is_inside, runs, since_return, until, until_left
from hangdoc.diagnosis.condition.stack_comparison import callees_of, guards_of
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.landmarks import is_implicit, plain
from hangdoc.diagnosis.frames.stacks import lines_of, user_stack
from hangdoc.diagnosis.source.guards import guards, loops_around
from hangdoc.diagnosis.source.loops import (
    calls_its_items,
    ends_alike,
    ways_out,
)
from hangdoc.diagnosis.source.queries import adds_what_it_finds, set_after, set_in_some_rounds
from hangdoc.diagnosis.source.values import SideRanks
from hangdoc.model.process import Frame, Stack


def programs_of(case: Case, ranks: tuple[int, ...]) -> list[RankProgram]:
    """Each distinct program of the ranks, once."""
    return [program for program, _ in distinct({rank: case.programs[rank] for rank in ranks if rank in case.programs})]


def left_early(case: Case, point: BranchPoint, ranks: SideRanks, tokens: tuple[Token | None, ...]) -> bool:
    """True if one side left the loop before the other, in the same execution of it.

    ``ranks[i]`` and ``tokens[i]`` are the ranks of side i and its call at the divergence. False if a counter says that
    the side inside has started the loop again, or if the side that left went round as often as every time before.
    Example: the side that left made calls [4, 4, 3] in the loop → True, [4, 4, 4] → False.
    """
    inside, left = ranks[point.guarded], ranks[1 - point.guarded]
    token = tokens[point.guarded]
    around = _loops_around(case, token.stack if token is not None else (), point)
    if around != [] and _was_further(case, point, inside, left):
        return False  # the others have started it again, which they can't where it is known that no loop is around it
    if any(_are_a_round_further(case, frame, counters, inside, left) for frame, counters in around or ()):
        return False  # the others have started it again
    if _ended_its_turn(case, point, left, tokens):
        return False
    if around and _are_in_one_round(case, around, (inside, left), (token, tokens[1 - point.guarded]), point):
        return True
    if not any(_as_often_as_before(case, program, point, tokens) for program in programs_of(case, left)):
        return True
    return _goes_on_longer(case, point, token, tokens[1 - point.guarded])


def _goes_on_longer(case: Case, loop: BranchPoint, call: Token | None, outside: Token | None) -> bool:
    """True if the rank inside has made more calls from its line than in each execution before, which were all alike,
    where each round makes some: the others may well have left as ever, it is in a round that they did not have.

    Not so where the call ``outside``, that followed the loop elsewhere, depends on a condition: the rank inside may
    have gone without it, and into the loop again. Example: of `for name in sorted(self.scores): ⏎
    self.scores[name].compute()` and a gather after it, calls [3, 3, 4] → True.
    """
    program = case.programs.get(call.rank) if call is not None else None
    tree = case.sources.function(loop.file, loop.line)
    if call is None or outside is None or program is None or tree is None or not call.pending:
        return False
    if any(g.kind != "loop" and loop.guard.holds(g.line) for g in guards(tree, loop.line)):
        return False  # a round may also go without one
    if _conditions(case, outside.stack) - _conditions(case, call.stack):
        return False
    made = [t for t in until(program.tokens, call) if not is_inside(t, loop) or _is_at(t, loop)]
    counts = runs(made, loop)
    return len(counts) > 1 and len(set(counts[:-1])) == 1 and counts[-1] > counts[-2]


def _conditions(case: Case, stack: Stack) -> set[tuple[str, tuple[int, str], bool]]:
    """What identifies the conditions that lead to the lines of the stack's user frames, and how they were taken."""
    callees = callees_of(stack)
    found = [(frame.file, guard) for frame in user_stack(stack) for guard in guards_of(case.sources, frame, callees)]
    return {(file, guard.place, guard.taken) for file, guard in found if guard.kind != "loop"}


def _is_at(call: Token, loop: BranchPoint) -> bool:
    """True if the call was made from the line of the loop's body at which the rank is."""
    return any((f.file, f.line, plain(f.function)) == (loop.file, loop.line, loop.function) for f in call.stack)


def _was_further(case: Case, loop: BranchPoint, inside: tuple[int, ...], left: tuple[int, ...]) -> bool:
    """True if the loop's counters show the ranks that left as far as, or further than, those inside."""
    tree = case.sources.function(loop.file, loop.line)
    later = set_after(tree, loop.guard, loop.line) if tree is not None else set()
    seldom = set_in_some_rounds(tree, loop.guard) | adds_what_it_finds(tree, loop.guard) if tree is not None else set()
    steady = tuple(name for name in loop.guard.counters if name not in later | seldom)
    counted = _counted(case, loop, steady, inside, left)
    beyond = _counted(case, loop, tuple(later - seldom), inside, left)
    return bool(counted or beyond) and (
        all(min(there) >= max(here) for here, there in counted)
        and all(min(there) > max(here) for here, there in beyond)
    )


def _are_a_round_further(
    case: Case, frame: Frame, counters: tuple[str, ...], inside: tuple[int, ...], left: tuple[int, ...]
) -> bool:
    """True if the counters of an outer loop, which ``frame`` is in, show the ranks inside in a later round of it."""
    counted = _counted(case, frame, counters, inside, left)
    return bool(counted) and all(min(here) > max(there) for here, there in counted)


def _are_in_one_round(
    case: Case,
    around: Sequence[tuple[Frame, tuple[str, ...]]],
    ranks: SideRanks,
    tokens: tuple[Token | None, Token | None],
    loop: BranchPoint,
) -> bool:
    """True if the counters of all loops around show both sides in one round now: neither has started it again."""
    inside, left = tokens
    if inside is None or left is None or not inside.pending or left.rank not in case.programs:
        return False
    if left.order < 0 or any(is_inside(each, loop) for each in case.programs[left.rank].tokens[left.order :]):
        return False
    for frame, counters in around:
        counted = _counted(case, frame, counters, *ranks)
        if not counted or any(len({*here, *there}) > 1 for here, there in counted):
            return False
    return True


def _as_often_as_before(case: Case, program: RankProgram, loop: BranchPoint, tokens: tuple[Token | None, ...]) -> bool:
    """True if each execution of the loop made as many calls as the ones before, or as many of the missing one.

    Libraries now and then make a call of their own besides. Example: [4, 4] → True, [4] → False.
    """
    inside, outside = tokens[loop.guarded], tokens[1 - loop.guarded]
    if outside is not None and _came_again(program, outside):
        return False
    made = since_return(case.sources, loop, until_left(program.tokens, outside, loop), outside)
    counts = [runs(made, loop), runs(made, loop, inside.site) if inside is not None else []]
    return any(len(each) > 1 and len(set(each)) == 1 for each in counts)


def _came_again(program: RankProgram, call: Token) -> bool:
    """True if the rank's calls before this one are from its line as well, and as many as that line makes each time: it
    came by the line twice, and whatever lies between had no round.

    Example: `for x in loader: ⏎ step(x)`, and `all_gather_object(…)` after it, which makes two calls; of s s g g s s g
    g g, the last g → True.
    """
    here = lines_of(call.site)[:1]
    each = groupby(program.tokens[: call.order], lambda token: lines_of(token.site)[:1])  # whoever called its function
    earlier = [(line, len(list(calls))) for line, calls in each]
    usual = {made for line, made in earlier[:-1] if line == here}
    return bool(here) and earlier[-1:] == [(here, made) for made in usual]


def _loops_around(case: Case, stack: Stack, loop: BranchPoint) -> list[tuple[Frame, tuple[str, ...]]] | None:
    """(frame, names that count the rounds) of each loop around ``loop``, in any caller, outermost first.

    None where a caller's source is unknown or a library calls the function: there may be other loops. Example: in `for
    epoch in range(3): for batch in loader: …`, of the inner loop → [(that frame, ('epoch',))].
    """
    frames = list(reversed(user_stack(stack)))
    own = next((i for i, f in enumerate(frames) if f.file == loop.file and plain(f.function) == loop.function), None)
    if own is None or not _is_called_by_user(stack, frames[own]):
        return None
    found = []
    for frame in frames[: own + 1]:
        tree = case.sources.function(frame.file, frame.line)
        if tree is None:
            return None
        loops = loops_around(tree, frame.line)
        found += [(frame, g.rounds) for g in loops if frame is not frames[own] or g.span[0] < loop.guard.span[0]]
    return found


def _is_called_by_user(stack: Stack, frame: Frame) -> bool:
    """True if only user code is above the frame, so that no library decides how often the function runs."""
    outer = stack[next(i for i, f in enumerate(stack) if f is frame) :]
    return len(user_stack(outer)) == len(outer)


def _counted(
    case: Case, place: BranchPoint | Frame, names: tuple[str, ...], inside: tuple[int, ...], left: tuple[int, ...]
) -> list[tuple[list[int], list[int]]]:
    """For each of ``names`` that both sides show as a number: (its values on ``inside``, its values on ``left``)."""
    found = []
    for name in names:
        per_rank = case.values.of(place.file, place.function, name)
        here, there = (
            [int(v) for r in side if (v := per_rank.get(r, "")).lstrip("-").isdigit()] for side in (inside, left)
        )
        found += [(here, there)] if here and there else []
    return found


def _ended_its_turn(case: Case, loop: BranchPoint, left: tuple[int, ...], tokens: tuple[Token | None, ...]) -> bool:
    """True if the ranks left a loop over equal turns at the end of a turn, so that the others have started it again.

    The loop makes one call in each round, of sizes that repeat. Example: a broadcast of each of a model's four
    parameters; the ranks that left made 8 calls, two whole turns.
    """
    inside, last = tokens[loop.guarded], tokens[1 - loop.guarded]
    if inside is None or not _is_explicit_call_of(inside, loop) or inside.rank not in case.programs:
        return False
    if not _is_innermost(case, loop, inside):
        return False  # then a round of it is as long as the whole turn of the loop within
    sizes = [t.sizes for t in case.programs[inside.rank].tokens if is_inside(t, loop) and t.site == inside.site]
    turn = period(sizes)
    if not turn or len(set(sizes[:turn])) < 2:
        return False
    calls = [sum(t.site == inside.site for t in until(program.tokens, last)) for program in programs_of(case, left)]
    return bool(calls) and all(count % turn == 0 for count in calls)


def _is_innermost(case: Case, loop: BranchPoint, call: Token) -> bool:
    """True if no other loop of the same function lies between this one and the call."""
    frame = call.frame
    tree = case.sources.function(frame.file, frame.line) if frame is not None else None
    around = loops_around(tree, frame.line) if frame is not None else []
    return not around or around[-1].place == loop.guard.place


def _is_explicit_call_of(token: Token, loop: BranchPoint) -> bool:
    """True if the loop's own function made the call, and no library on its behalf."""
    frame = token.frame
    if frame is None or is_implicit(token.stack):
        return False
    return (frame.file, plain(frame.function)) == (loop.file, loop.function)


def is_complete(program: RankProgram) -> bool:
    """True if the journal begins with the rank's first call, so that its calls can be counted."""
    return bool(program.tokens) and program.tokens[0].sequence == 1


def goes_round_alike(case: Case, loop: BranchPoint) -> bool:
    """True if the loop goes round equally often on every rank: fixed bounds, no `break` or `return` in it."""
    tree = case.sources.function(loop.file, loop.guard.line)
    return tree is not None and ends_alike(tree, loop.guard.line) and not ways_out(tree, loop.guard.line)


def is_over_own_parts(case: Case, loop: BranchPoint) -> bool:
    """True if a library calls there what it holds: this is equally many on every rank."""
    return loop.of_library and calls_what_it_holds(case, loop)


def calls_what_it_holds(case: Case, loop: BranchPoint) -> bool:
    """True if the loop calls its items, one after the other, and never leaves off half way.

    Examples: `for i, block in enumerate(self.h):` over the layers of a model, and `for func, args in
    self._event_handlers[event]: func(*args)` over what was registered with ignite's engine.
    """
    tree = case.sources.function(loop.file, loop.guard.line)
    return tree is not None and calls_its_items(tree, loop.guard.line) and not ways_out(tree, loop.guard.line)
