"""A lock that ranks wait for another rank to let go, without wanting it themselves, and that one left without doing so.

Example: `mine = baton.try_acquire() ⏎ if mine: ⏎ try: ⏎ build() ⏎ except ValueError: ⏎ return None ⏎ baton.release() ⏎
else: ⏎ baton.wait()`; ranks 1 and 2 wait, rank 0 has gone on by the handler → rank 0.
"""

from __future__ import annotations

from dataclasses import dataclass

from hangdoc.diagnosis.blame.left_lock import has_passed
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Explanation
from hangdoc.diagnosis.frames.stacks import same_function, user_stack
from hangdoc.diagnosis.source.guards import Guard
from hangdoc.diagnosis.source.locks import let_go_late
from hangdoc.diagnosis.source.taken_before import taken_before
from hangdoc.diagnosis.source.ways_round import ways_round_letting_go
from hangdoc.model.kinds import ActivityKind, Confidence
from hangdoc.model.message import Condition
from hangdoc.model.process import Frame
from hangdoc.model.wording import ranks_text


@dataclass(frozen=True, slots=True)
class AwaitedLock(Explanation):
    """The culprit took the lock for which the others wait, and went on without letting it go."""

    waiting: tuple[int, ...]
    taken_at: Frame
    let_go: tuple[int, str]
    """Line and text of what lets it go."""
    left_at: Frame | None = None
    """The line by which the function is left before that, where one is known."""
    test: Condition | None = None
    """Under what it is run."""
    ran: bool = False
    """True if the counters show that the culprit alone has run that line."""


def awaited_lock(case: Case) -> Blame[AwaitedLock] | None:
    """The blame of the rank that has run the line which leads round letting go, and no rank that waits has; else of
    that which has come past the wait. None where a rank is still between taking and letting go."""
    waiting = tuple(r for r in sorted(case.seen) if case.activities[r].kind == ActivityKind.FILE_LOCK)
    places = {next(iter(user_stack(case.activities[rank].stack)), None) for rank in waiting}
    lines = {(frame.file, frame.line): frame for frame in places if frame is not None}
    if len(lines) != 1 or None in places or not set(waiting) >= case.graph.roots & case.seen:
        return None
    (where,) = lines.values()
    taken_at = taken_before(where, case.sources)
    let_go = let_go_late(taken_at, case.sources) if taken_at is not None else None
    others = tuple(sorted(case.seen - set(waiting)))
    if taken_at is None or let_go is None or any(_holds_it(case, r, taken_at, let_go[0]) for r in others):
        return None
    ways = ways_round_letting_go(taken_at, case.sources)
    for line, guard in ways:
        mine = case.table.split(others, taken_at.file, line).ran
        if mine and not case.table.split(waiting, taken_at.file, line).ran:
            sure = f"{ranks_text(mine)} alone ran the line that goes round letting it go"
            found = _found(waiting, taken_at, let_go, (line, guard), ran=True)
            return Blame(found, mine, proved=True, confidence=Confidence.LIKELY, sure=sure)
    past = tuple(rank for rank in others if has_passed(case, rank, waiting))
    if not past:
        return None
    found = _found(waiting, taken_at, let_go, ways[0] if len(ways) == 1 else None, ran=False)
    if len(past) > 1:
        sure = f"{ranks_text(past)} are past the wait; which of them took the lock was not seen"
        return Blame(found, past[:1], tuple((rank,) for rank in past[1:]), sure=sure)
    sure = f"rank {past[0]} alone is past the wait for the lock"
    return Blame(found, past, confidence=Confidence.LIKELY, sure=sure)


def _holds_it(case: Case, rank: int, taken_at: Frame, let_go: int) -> bool:
    """True if the rank is in what the lock guards."""
    frames = user_stack(case.activities[rank].stack)
    return any(same_function(frame, taken_at) and taken_at.line <= frame.line <= let_go for frame in frames)


def _found(
    waiting: tuple[int, ...], taken_at: Frame, let_go: tuple[int, str], way: tuple[int, Guard] | None, *, ran: bool
) -> AwaitedLock:
    if way is None:
        return AwaitedLock(waiting, taken_at, let_go)
    line, guard = way
    left_at = Frame(taken_at.file, line, taken_at.function)
    return AwaitedLock(waiting, taken_at, let_go, left_at, Condition(guard.condition, taken_at.file, guard.line), ran)
