"""Whether an exception took a side out of a loop: it still handles one, or nothing else leads out of the loop."""

from __future__ import annotations

from collections import Counter

from hangdoc.diagnosis.calls.history import RankProgram, Token
from hangdoc.diagnosis.calls.periods import period
from hangdoc.diagnosis.condition.branch_point import BranchPoint
from hangdoc.diagnosis.condition.loops.executions import is_inside, runs, until_left
from hangdoc.diagnosis.condition.loops.loop_counts import goes_round_alike, is_complete, programs_of
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.source.loops import fixed_rounds


def fell_out(case: Case, loop: BranchPoint, left: tuple[int, ...], token: Token | None) -> bool:
    """True if an exception took the ranks out of the loop: they still handle one that was raised below it, or its
    source shows no other way.

    In the second case the loop goes round equally often everywhere, and yet the ranks made fewer calls in it than in
    the execution before. Example: `for i in range(4)` with calls [4, 4, 2] → True.
    """
    if loop.left_at is not None:
        return False
    if left and all(_handles_what_it_raised(case, loop, rank) for rank in left):
        return True
    tree = case.sources.function(loop.file, loop.guard.line)
    if tree is None or not goes_round_alike(case, loop):
        return False
    programs = programs_of(case, left)
    return bool(programs) and all(_was_cut(loop, fixed_rounds(tree, loop.guard.line), each, token) for each in programs)


def _was_cut(loop: BranchPoint, rounds: int, program: RankProgram, token: Token | None) -> bool:
    """True if the rank's last execution of a loop of equal rounds (``rounds``, 0 where their number is not fixed) made
    fewer calls than the one before.

    Executions with nothing in between look like one: then their calls come in turns, as fixed rounds or sizes that
    repeat show, and only a turn that is not whole was cut. Example: turns of 2 calls, [10, 6] → False, [10, 5] → True.
    """
    tokens = until_left(program.tokens, token, loop)
    # Libraries now and then make a call of their own besides the one of each round.
    often = Counter(t.site for t in tokens if is_inside(t, loop)).most_common(1)
    counts = runs(tokens, loop, often[0][0] if often else None)
    sizes = [t.sizes for t in tokens if is_inside(t, loop) and t.site == often[0][0]] if often else []
    if len(counts) < 2:
        return bool(rounds and is_complete(program) and sum(counts) % rounds)
    turn = period(sizes)
    return counts[-1] < counts[-2] and not (turn > 1 and len(set(sizes[:turn])) > 1 and not counts[-1] % turn)


def _handles_what_it_raised(case: Case, loop: BranchPoint, rank: int) -> bool:
    """True if the rank is in an `except` or `finally` suite, for an exception that came out of the loop."""
    journal = case.ranks[rank].journal if rank in case.ranks else None
    first, last = loop.guard.span
    return journal is not None and any(
        (frame.file, plain(frame.function)) == (loop.file, loop.function) and first <= frame.line <= last
        for frame in (journal.handled_at if journal.handled else ())
    )
