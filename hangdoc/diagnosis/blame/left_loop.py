"""The loop in which a rank passed its messages, and which it has left while others are still in it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hangdoc.diagnosis.condition.rounds_ahead import is_in_one_round
from hangdoc.diagnosis.condition.stack_comparison import is_past
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.source.guards import Guard, loops_around
from hangdoc.model.message import Condition
from hangdoc.model.process import Frame, Stack


@dataclass(frozen=True, slots=True)
class LeftLoop:
    """The loop in which a rank passed its messages and which it has left; ``still``: the ranks still in it."""

    still: tuple[int, ...]
    gone: tuple[int, ...]
    """The ranks that passed messages in it and left it, this rank included."""
    condition: str
    frame: Frame
    later: bool
    """The counter of the loop shows all that are still in it in a later round than the last one of any that left it."""
    way_out: Condition | None = None
    """The only condition by which a rank leaves it, where it does not end by itself."""


def left_loop(case: Case, rank: int) -> LeftLoop | None:
    """The loop that the rank has left while others are in it; None if it is still in it, or no other rank is.

    Example: rank 1 passed its messages in `for chunk in chunks:` and is now in a barrier after it, ranks 0 and 2 are
    still in the loop → that loop, still (0, 2), gone (1,).
    """
    for frame in user_stack(_last_issued(case, rank)):
        tree = case.sources.function(frame.file, frame.line)
        loop = next(reversed(loops_around(tree, frame.line)), None)
        if loop is None:
            continue
        inside = {r for r, activity in case.activities.items() if _holds(loop, frame, activity.stack)}
        gone = {r for r in case.activities if r not in inside and _holds(loop, frame, _last_issued(case, r))}
        if rank in inside or not inside:
            return None
        at = replace(frame, line=loop.line)
        later = _are_later(case, loop, frame, inside, gone)
        return LeftLoop(tuple(sorted(inside)), tuple(sorted(gone)), loop.condition, at, later)
    return None


def _are_later(case: Case, loop: Guard, frame: Frame, inside: set[int], gone: set[int]) -> bool:
    for name in loop.rounds[:1]:
        counted = case.values.of(frame.file, frame.function, name)
        if all(counted.get(rank, "").isdecimal() for rank in inside | gone):
            return min(int(counted[rank]) for rank in inside) > max(int(counted[rank]) for rank in gone)
    return False


def _last_issued(case: Case, rank: int) -> Stack:
    journal = case.ranks[rank].journal
    return journal.stack(journal.point_to_points[-1].stack) if journal is not None and journal.point_to_points else ()


def _holds(loop: Guard, at: Frame, stack: Stack) -> bool:
    return any(
        (f.file, plain(f.function)) == (at.file, plain(at.function)) and loop.span[0] < f.line <= loop.span[1]
        for f in stack
    )


def is_past_in_round(case: Case, rank: int, other: int) -> bool:
    """True if the rank is certainly further on than the other: in the same round of the loops that both are in, as far
    as there are any."""
    how = is_past(case.sources, case.activities[rank].stack, case.activities[other].stack)
    return how == "certainly" or (how == "perhaps" and is_in_one_round(case, rank, other))
