"""A lock or semaphore that processes share, which a rank took and left its function without letting go.

Example: ranks 0 and 2 wait in `self.places.acquire()`; rank 1 alone has run the `return` under `if part is None:` that
stands between it and `self.places.release()` → rank 1.
"""

from __future__ import annotations

from dataclasses import dataclass

from hangdoc.diagnosis.blame.how_sure import has_children, nobody_acts
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Explanation
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.source.guards import Guard
from hangdoc.diagnosis.source.ways_round import ways_round_letting_go
from hangdoc.model.kinds import Confidence, WaitReason
from hangdoc.model.message import Condition
from hangdoc.model.process import Frame
from hangdoc.model.wording import ranks_text


@dataclass(frozen=True, slots=True)
class KeptLock(Explanation):
    """The culprits alone have run the line that leads round letting go what all take at one line."""

    trying: tuple[int, ...]
    taken_at: Frame
    left_at: Frame
    test: Condition


def kept_lock(case: Case) -> Blame[KeptLock] | None:
    """The blame of those ranks; of any of all, where all wait for it and the counters do not tell who has run such a
    line; else None."""
    trying = tuple(r for r in sorted(case.seen) if case.activities[r].reason == WaitReason.SHARED_LOCK)
    places = {next(iter(user_stack(case.activities[rank].stack)), None) for rank in trying}
    lines = {(frame.file, frame.line): frame for frame in places if frame is not None}
    if len(lines) != 1 or None in places:
        return None
    (taken_at,) = lines.values()
    ways = ways_round_letting_go(taken_at, case.sources)
    for line, guard in ways:
        mine, never, unknown = case.table.split(sorted(case.seen), taken_at.file, line)
        if not mine or not (never or unknown):
            continue
        found = _left_by(trying, taken_at, line, guard)
        how = Confidence.POSSIBLE if unknown else Confidence.LIKELY
        sure = f"{ranks_text(mine)} alone ran the line that goes round letting it go"
        proved = nobody_acts(case, trying) and not any(has_children(case, rank) for rank in sorted(case.seen))
        return Blame(found, mine, proved=proved, confidence=how, sure=sure)
    if len(ways) != 1 or set(trying) != set(case.ranks) or any(has_children(case, rank) for rank in trying):
        return None
    sure = "all wait for it, so nobody is left to let it go; no source shows who took it last"
    found = _left_by(trying, taken_at, *ways[0])
    return Blame(found, trying, tuple((r,) for r in trying), proved=nobody_acts(case, trying), sure=sure)


def _left_by(trying: tuple[int, ...], taken_at: Frame, line: int, guard: Guard) -> KeptLock:
    left_at = Frame(taken_at.file, line, taken_at.function)
    return KeptLock(trying, taken_at, left_at, Condition(guard.condition, taken_at.file, guard.line))
