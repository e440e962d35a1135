"""The guards at which a side that is in a later round than the other can have diverged from it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from hangdoc.diagnosis.condition.branch_point import BranchPoint, branch_point
from hangdoc.diagnosis.condition.scores import LEFT_LOOP, PER_LEVEL, TRY_BODY
from hangdoc.diagnosis.condition.stack_comparison import (
    callees_of,
    common_rounds,
    guards_of,
    readable,
    within_one_function,
)
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.library import is_library
from hangdoc.diagnosis.frames.stacks import fork
from hangdoc.diagnosis.source.guards import CONDITIONS, Guard
from hangdoc.diagnosis.source.loops import tries_again
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.model.process import Frame, Stack


def caught_outside(sources: Sources, sides: tuple[Stack, Stack]) -> list[BranchPoint]:
    """The innermost try around a function that side 0 has started again, where side 1 is further on in it; of a
    library's, only one that an exception makes run it again.

    Example: `try: step()` in a loop; side 0 is at step:1, side 1 at step:5 → the try, as a list of one.
    """
    where = fork(*sides, frames_of=partial(readable, sources))
    diverged = within_one_function(sources, where)
    if diverged is None or diverged[0].line >= diverged[1].line:
        return []
    found: list[BranchPoint] = []
    for level, frame in reversed(list(enumerate(where.theirs[: where.common]))):
        tried = (g for g in reversed(guards_of(sources, frame, callees_of(sides[1]))) if g.is_tried)
        tried = (g for g in tried if not is_library(frame) or _tries_again(sources, frame, g))
        found += [branch_point(guard, frame, 1, TRY_BODY, level=level) for guard in tried]
    return found[:1]


def retried(sources: Sources, sides: tuple[Stack, Stack]) -> list[BranchPoint]:
    """That try, or one around both sides' lines, where nothing but an exception makes it run again: what led side 0 to
    the start of it.

    Example: `for attempt in range(3): ⏎ try: ⏎ return publish() ⏎ except OSError: ⏎ wait()` → the `try:`.
    """
    where = fork(*sides, frames_of=partial(readable, sources))
    diverged = within_one_function(sources, where)
    if diverged is not None and diverged[0].line < diverged[1].line:
        around = [g for g in guards_of(sources, diverged[1], callees_of(sides[1])) if g.holds(diverged[0].line)]
        tried = next((g for g in reversed(around) if g.is_tried), None)
        if tried is not None and _tries_again(sources, diverged[1], tried):
            return [branch_point(tried, diverged[1], 1, TRY_BODY, level=where.common)]
    found = caught_outside(sources, sides)
    lines = [frame for frame in sides[1] for p in found if frame.file == p.file and p.guard.holds(frame.line or 0)]
    return found if any(_tries_again(sources, frame, found[0].guard) for frame in lines) else []


def _tries_again(sources: Sources, frame: Frame, tried: Guard) -> bool:
    tree = sources.function(frame.file, frame.line)
    return tree is not None and tries_again(tree, tried.line)


def guards_of_last_round(sources: Sources, sides: tuple[Stack, Stack]) -> list[BranchPoint]:
    """The guards of an earlier round of a loop that both sides are in.

    First the loops further in than the common one, innermost first: side 0 has left them all, if it is before side 1's
    call now. Then the conditions in the common loop that lead to side 1's call: in an earlier round, side 0 may have
    decided one of them differently. Example: in `for batch in loader: if bad: continue; load(); step()`, side 0 is at
    `load`, side 1 at `step` → `if bad:`, as side 0 may have skipped `step` in the round before.
    """
    where = fork(*sides)
    diverged = within_one_function(sources, where)
    if diverged is None:
        return []
    at, there = where.common, diverged[1]
    callees = callees_of(sides[1])
    mine, theirs = guards_of(sources, diverged[0], callees_of(sides[0])), guards_of(sources, there, callees)
    loops = [g for g in theirs if g.kind == "loop" and g in mine]
    if not loops:
        return []
    first, last = loops[-1].span
    left = [
        replace(branch_point(g, frame, 1, LEFT_LOOP + level * PER_LEVEL, level=level), uneven=True)
        for level, frame in enumerate(where.theirs[at + 1 :], at + 1)
        for g in guards_of(sources, frame, callees)
        if g.kind == "loop" and diverged[0].line < diverged[1].line
    ]
    conditions = (g for g in theirs if g.kind in CONDITIONS and g in mine and first < g.line <= last)
    return left[::-1] + [branch_point(g, there, 1, TRY_BODY, level=at) for g in conditions]


def rounds_of(case: Case, *pair: int) -> tuple[list[int], list[int]] | None:
    """The counts of the loops that both ranks are in, the outermost first; None where one is not seen, or is none."""
    names = common_rounds(case.sources, *(case.activities[rank].stack for rank in pair))
    counts = [[case.values.of(*each).get(rank, "") for each in names] for rank in pair]
    if not names or not all(count.isdecimal() for each in counts for count in each):
        return None
    return list(map(int, counts[0])), list(map(int, counts[1]))


def skipped_when_called_before(sources: Sources, sides: tuple[Stack, Stack]) -> list[BranchPoint]:
    """The conditions that lead to side 1's call in the function that both sides are in, where side 0 is in a later
    round of a loop around the call of it: it may have decided one of them differently. None on the rank.

    Example: `for n in range(9): ⏎ phase(n)`; in phase(), side 1 waits at line 9, after `if overloaded(): ⏎ return`, and
    side 0 at line 5 of the next round → that `if`.
    """
    diverged = within_one_function(sources, fork(*sides))
    if diverged is None:
        return []
    mine, theirs = (guards_of(sources, frame, callees_of(side)) for frame, side in zip(diverged, sides, strict=True))
    conditions = [g for g in theirs if g.kind in CONDITIONS and g not in mine]
    found = [branch_point(guard, diverged[1], 1, TRY_BODY, level=0) for guard in conditions]
    return [point for point in reversed(found) if not point.rank_like]


def is_in_later_round(case: Case, rank: int, other: int) -> bool:
    """True if the counters of the loops that both are in show the rank in a later round: the line that it is at now
    lies behind that round's conditions, and none around it led it past the other's.

    Example: rank 3 is at phase:45 in round 6, rank 1 at phase:49 in round 5 → True.
    """
    rounds = rounds_of(case, rank, other)
    return rounds is not None and rounds[0] > rounds[1]


def left_by_those_ahead(case: Case, sides: tuple[Stack, Stack], rank: int, other: int) -> list[BranchPoint]:
    """The loops around side 0's call, further in than the common one, that side 1 has left, the innermost first: what
    counts the rounds shows side 1 in a later one. ``rank`` is of side 0, ``other`` of side 1.

    Example: in `for number in range(9): ⏎ train(data) ⏎ report()`, side 1 is in train() in round 1, side 0 is in round
    0, in `for name in sorted(self.found):` of report() → that loop.
    """
    if not is_in_later_round(case, other, rank):
        return []
    found = [p for p in guards_of_last_round(case.sources, (sides[1], sides[0])) if p.uneven]
    return [replace(p, guarded=0) for p in found if not is_library(Frame(p.file, p.line, p.function))]


def is_in_one_round(case: Case, rank: int, other: int) -> bool:
    """True if the counters of the loops that both ranks are in show one round of them."""
    rounds = rounds_of(case, rank, other)
    return rounds is not None and rounds[0] == rounds[1]
