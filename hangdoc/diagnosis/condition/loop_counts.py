"""How often each rank went round a loop, by the calls that its journal shows inside of it."""

from __future__ import annotations

from collections import Counter

from hangdoc.diagnosis.calls.history import RankProgram, Token, distinct
from hangdoc.diagnosis.calls.periods import period
from hangdoc.diagnosis.condition.candidates import BranchPoint
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.landmarks import is_implicit, plain
from hangdoc.diagnosis.frames.stacks import Site, fork, user_stack
from hangdoc.diagnosis.source.guards import guards
from hangdoc.diagnosis.source.queries import ends_alike, fixed_rounds, ways_out
from hangdoc.model.process import Frame, Stack


def runs(tokens: list[Token], point: BranchPoint, site: Site | None = None) -> list[int]:
    """How many calls each execution of the loop issued; the last one may not be over.

    Two executions with no call between them count as one. ``site``: only calls from there are counted. Example: calls
    in, in, out, in of a loop → [2, 1].
    """
    counts: list[int] = []
    inside = False
    for token in tokens:
        if is_inside(token, point):
            if not inside:
                counts.append(0)
            counts[-1] += site in (None, token.site)
            inside = True
        else:
            inside = False
    return counts


def _programs(case: Case, ranks: tuple[int, ...]) -> list[RankProgram]:
    """Each distinct program of the ranks, once."""
    return [program for program, _ in distinct({rank: case.programs[rank] for rank in ranks if rank in case.programs})]


def is_inside(token: Token, point: BranchPoint) -> bool:
    """True if the call was made in the body of the guard's statement."""
    first, last = point.guard.span
    return any(
        f.file == point.file and plain(f.function) == point.function and first < f.line <= last for f in token.stack
    )


def left_early(
    case: Case, point: BranchPoint, ranks: tuple[tuple[int, ...], tuple[int, ...]], tokens: tuple[Token | None, ...]
) -> bool:
    """True if one side left the loop before the other, in the same execution of it.

    ``ranks[i]`` and ``tokens[i]`` are the ranks of side i and its call at the divergence. False if a counter says that
    the side inside has started the loop again, or if the side that left went round as often as every time before.
    """
    inside, left = ranks[point.guarded], ranks[1 - point.guarded]
    stack = next((t.stack for t in (tokens[point.guarded],) if t is not None), ())
    around = _loops_around(case, stack, point)
    counted = _counted(case, point, point.guard.counters, inside, left)
    further = [min(there) >= max(here) for here, there in counted]
    if further and all(further) and around != []:  # other names may be set back in between
        return False
    for frame, counters in around or ():
        # The others are a round of the outer loop further on: they have started this loop again.
        outer = _counted(case, frame, counters, inside, left)
        if outer and all(min(here) > max(there) for here, there in outer):
            return False
    if _ended_its_round(case, point, left, tokens):
        return False
    for program in _programs(case, left):
        counts = runs(_until(program.tokens, tokens[1 - point.guarded]), point)
        if len(counts) > 1 and len(set(counts)) == 1:
            return False
    return True


def _loops_around(case: Case, stack: Stack, loop: BranchPoint) -> list[tuple[Frame, tuple[str, ...]]] | None:
    """(frame, names that count the rounds) of each loop around ``loop``, in any caller, outermost first.

    None where a caller's source is unknown or a library calls the function: there may be other loops.
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
        loops = [g for g in guards(tree, frame.line) if g.kind == "loop"]
        found += [(frame, g.rounds) for g in loops if frame is not frames[own] or g.span[0] < loop.guard.span[0]]
    return found


def _is_called_by_user(stack: Stack, frame: Frame) -> bool:
    """True if only user code is above the frame, so that no library decides how often the function runs."""
    outer = stack[next(i for i, f in enumerate(stack) if f is frame) :]
    return len(user_stack(outer)) == len(outer)


def _counted(
    case: Case, place: BranchPoint | Frame, names: tuple[str, ...], inside: tuple[int, ...], left: tuple[int, ...]
) -> list[tuple[list[int], list[int]]]:
    """For each of ``names`` that both sides show: (its values on ``inside``, its values on ``left``)."""
    found = []
    for name in names:
        per_rank = case.values.of(place.file, place.function, name)
        here, there = (
            [int(v) for r in side if (v := per_rank.get(r, "")).lstrip("-").isdigit()] for side in (inside, left)
        )
        found += [(here, there)] if here and there else []
    return found


def _ended_its_round(case: Case, point: BranchPoint, left: tuple[int, ...], tokens: tuple[Token | None, ...]) -> bool:
    """True if the ranks left a loop over equal turns at the end of a turn, so that the others have started it again.

    The loop makes one call in each round, of sizes that repeat. Example: a broadcast of each of a model's four
    parameters; the ranks that left made 8 calls, two whole turns.
    """
    inside = tokens[point.guarded]
    frame = inside.frame if inside is not None else None
    if inside is None or frame is None or is_implicit(inside.stack) or inside.rank not in case.programs:
        return False
    if (frame.file, plain(frame.function)) != (point.file, point.function):
        return False
    sizes = [t.sizes for t in case.programs[inside.rank].tokens if is_inside(t, point) and t.site == inside.site]
    turn = period(sizes)
    if not turn or len(set(sizes[:turn])) < 2:
        return False
    programs = _programs(case, left)
    until = tokens[1 - point.guarded]
    return bool(programs) and all(
        sum(t.site == inside.site for t in _until(program.tokens, until)) % turn == 0 for program in programs
    )


def began_same_round(case: Case, loop: BranchPoint, left: tuple[int, ...], tokens: tuple[Token | None, ...]) -> bool:
    """True if the ranks that left had begun the round that the others are in.

    Either their last call in the loop comes before the missing one within a round, or another call that comes before
    it was made as often by them as by the others. Example: a round calls A, then B; their last call is A, and B is
    missing → True.
    """
    missing = tokens[loop.guarded]
    programs = _programs(case, left)
    if missing is None or not programs:
        return False
    if _had_the_round(case, loop, programs, missing):
        return True
    for program in programs:
        before = [t for t in _until(program.tokens, tokens[1 - loop.guarded]) if is_inside(t, loop)]
        if not before or not _stands_before(case, before[-1].stack, missing.stack, loop):
            return False
    return True


def _had_the_round(case: Case, loop: BranchPoint, left: list[RankProgram], missing: Token) -> bool:
    """True if each of ``left`` made some call that comes before ``missing`` in a round as often as its rank did."""
    other = case.programs.get(missing.rank)
    if other is None or any(not p.tokens or p.tokens[0].sequence > 1 for p in (other, *left)):
        return False  # counts that do not begin with the first call
    made = Counter(t.site for t in other.tokens[: missing.order] if t.site != missing.site and is_inside(t, loop))
    often = sum(t.site == missing.site for t in other.tokens[: missing.order])  # what comes seldom counts no rounds
    stacks = {t.site: t.stack for t in other.tokens[: missing.order] if made[t.site] > often}
    first = {site for site, stack in stacks.items() if _stands_before(case, stack, missing.stack, loop)}
    counts = [Counter(t.site for t in program.tokens) for program in left]
    return all(any(count[site] >= made[site] for site in first) for count in counts)


def _stands_before(case: Case, stack: Stack, other: Stack, loop: BranchPoint) -> bool:
    """True if ``stack`` is at an earlier line of the loop's body than ``other``, with no inner loop around both."""
    diverged = fork(stack, other).within_function
    if diverged is None:
        return False
    a, b = diverged
    tree = case.sources.function(b.file, b.line)
    if tree is None or a.line > b.line:
        return False
    here, there, known = (
        {g.place for g in guards(tree, line) if g.kind == "loop"} for line in (a.line, b.line, loop.guard.line)
    )
    own = (b.file, plain(b.function)) == (loop.file, loop.function)
    return not (here & there) - ({*known, loop.guard.place} if own else set())


def goes_round_alike(case: Case, loop: BranchPoint) -> bool:
    """True if the loop goes round equally often on every rank: fixed bounds, no `break` or `return` in it."""
    tree = case.sources.function(loop.file, loop.guard.line)
    return tree is not None and ends_alike(tree, loop.guard.line) and not ways_out(tree, loop.guard.line)


def fell_out(case: Case, loop: BranchPoint, left: tuple[int, ...], token: Token | None) -> bool:
    """True if an exception took the ranks out of the loop: its source shows no other way.

    The loop goes round equally often everywhere, and yet the ranks made fewer calls in it than in the execution before.
    Example: `for i in range(4)` with calls [4, 4, 2] → True.
    """
    tree = case.sources.function(loop.file, loop.guard.line)
    if tree is None or not goes_round_alike(case, loop):
        return False
    counts = []
    for program in _programs(case, left):
        tokens = _until(program.tokens, token)
        # Libraries now and then make a call of their own besides the one of each round.
        often = Counter(t.site for t in tokens if is_inside(t, loop)).most_common(1)
        counts.append(runs(tokens, loop, often[0][0] if often else None))
    whole = all(
        case.programs[r].tokens[0].sequence == 1 for r in left if r in case.programs and case.programs[r].tokens
    )
    rounds = fixed_rounds(tree, loop.guard.line) if whole else 0
    # Executions with nothing in between look like one.
    cut = [each[-1] < each[-2] if len(each) > 1 else bool(rounds and sum(each) % rounds) for each in counts]
    return bool(cut) and all(cut)


def _until(tokens: list[Token], end: Token | None) -> list[Token]:
    """The calls up to the one with the number of ``end``, that one included."""
    if end is None:
        return tokens
    last = next((i for i, t in enumerate(tokens) if t.group == end.group and t.sequence >= end.sequence), len(tokens))
    return tokens[: last + 1]
