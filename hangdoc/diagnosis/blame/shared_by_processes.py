"""Ranks wait for something that processes share, and who was to end that wait, or to meet them there, is past it: a
value in shared memory, an event or a barrier of multiprocessing's, which are no calls of the job's groups."""

from __future__ import annotations

from dataclasses import dataclass

from hangdoc.diagnosis.blame.unmade_file import at_one_line, is_further_on, ways_past
from hangdoc.diagnosis.blame.unset_key import other_arm
from hangdoc.diagnosis.condition.stack_comparison import is_past
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Explanation
from hangdoc.diagnosis.frames.landmarks import below_user, plain
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.source.shared_values import lines_at, what_changes_value, what_signals
from hangdoc.model.kinds import COMMUNICATING, GONE, ActivityKind, Confidence
from hangdoc.model.message import Condition
from hangdoc.model.process import Frame
from hangdoc.model.wording import ranks_text

_POLLING = (ActivityKind.SLEEPING, ActivityKind.COMPUTING)


@dataclass(frozen=True, slots=True)
class Unset(Explanation):
    """``waiting`` poll for a value in shared memory, or wait for a signal between processes; the culprits, who went the
    other way of ``test``, were to set it ``set_at`` that line."""

    waiting: tuple[int, ...]
    set_at: Frame
    test: Condition
    polled: bool


@dataclass(frozen=True, slots=True)
class PassedMeeting(Explanation):
    """``waiting`` are in a barrier between processes; the culprits are past it, and have not met them there."""

    waiting: tuple[int, ...]


def unset_by_the_other_arm(case: Case) -> Blame[Unset] | None:
    """The blame of the ranks that went the way on which a shared value, or an event, is set, and are past it.

    Example: ranks 1 to 3 poll `while page.version() < step:` in the `else` of `if rank == 0: ⏎ page.publish(step) ⏎
    else: ⏎ page.wait_for(step)`, and publish() writes under `if changed:`; rank 0 waits for them in the barrier behind
    it → rank 0.
    """
    asleep = tuple(r for r, a in sorted(case.activities.items()) if a.kind in (*_POLLING, ActivityKind.LOCK))
    others = tuple(sorted(set(case.activities) - set(asleep)))
    if not 0 < len(others) <= len(asleep) or case.hidden or not at_one_line(case, asleep):
        return None
    stack, kind = case.activities[asleep[0]].stack, case.activities[asleep[0]].kind
    find = what_changes_value if kind in _POLLING else what_signals
    set_at = find(case.sources, stack)
    if set_at is None or not all(is_further_on(case, rank, asleep) for rank in others):
        return None
    sets = lines_at(set_at)
    found = next((each for frame in stack if (each := other_arm(case.sources, frame, sets))), None)
    if found is None or found[0].file != set_at.file or not ways_past(case.sources, set_at, found[1]):
        return None
    sure = f"{ranks_text(others)} alone went the way on which it is set, as far as the source shows"
    explained = Unset(asleep, set_at, found[1], kind in _POLLING)
    return Blame(explained, others, confidence=Confidence.LIKELY, sure=sure)


def passed_meeting(case: Case) -> Blame[PassedMeeting] | None:
    """The blame of the ranks that are past a barrier between processes in which the others wait, and wait for these.

    Example: `if not rows: ⏎ return ⏎ self.barrier.wait()`: ranks 0, 1 and 3 are in the last line, rank 2 in the
    all_reduce that follows → rank 2. As many on either side: only possibly.
    """
    waiting = tuple(r for r, a in sorted(case.activities.items()) if _meets_processes(case, r))
    others = tuple(sorted(set(case.activities) - set(waiting)))
    if not waiting or not others or case.hidden or not at_one_line(case, waiting):
        return None
    stack = case.activities[waiting[0]].stack
    for rank in others:
        kind = case.activities[rank].kind
        if kind not in COMMUNICATING | GONE or (
            kind in COMMUNICATING and not is_past(case.sources, case.activities[rank].stack, stack)
        ):
            return None
    sides = (others, waiting) if len(others) <= len(waiting) else (waiting, others)
    how = Confidence.POSSIBLE if len(others) == len(waiting) else Confidence.LIKELY
    sure = (
        f"{ranks_text(waiting)} {'waits' if len(waiting) == 1 else 'wait'} there, and {ranks_text(others)} did not come"
    )
    return Blame(
        PassedMeeting(waiting),
        sides[0],
        (sides[1],) if how == Confidence.POSSIBLE else (),
        proved=True,
        confidence=how,
        sure=sure,
    )


def _meets_processes(case: Case, rank: int) -> bool:
    """True if the rank is in a barrier that processes share: threading's, upon a condition of multiprocessing's."""
    below = below_user(case.activities[rank].stack)
    meets = any(plain(f.function) in names("in_barrier") and f.file.endswith("/threading.py") for f in below)
    return meets and any(f.file.endswith(names("process_lock_file")) for f in below)
