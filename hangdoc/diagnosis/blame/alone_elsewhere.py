"""Many ranks wait at one line for something that is no rank, and the few that wait for them are elsewhere.

What the many wait for is unknown to all other rules: a library's queue, a file, a protocol of the program's own. But
ranks of one job are alike. Where most are at one line and a few are not, it is rarely the many that went wrong: the few
left out their part, or came past it another way. Of 33 saved hangs whose own rules were switched off, that was so in
28; the others were remote calls and keys of the store, of which more is known.

Example: ranks 0, 1 and 3 wait for a semaphore of multiprocessing's at train.py:40, and rank 2 in the barrier at
train.py:52 → rank 2.
"""

from __future__ import annotations

from dataclasses import dataclass

from hangdoc.diagnosis.blame.how_sure import at_one_line, has_children, nobody_acts
from hangdoc.diagnosis.blame.left_lock import lock_files
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Explanation
from hangdoc.diagnosis.source.own_names import own_name_polled
from hangdoc.model.kinds import ActivityKind, Confidence, WaitReason
from hangdoc.model.wording import ranks_text

_UNNAMED = frozenset(
    {
        ActivityKind.SLEEPING,
        ActivityKind.LOCK,
        ActivityKind.FILE_LOCK,
        ActivityKind.PIPE,
        ActivityKind.IO,
        ActivityKind.EVENT_LOOP,
    }
)
"""Waits that may be for a rank without showing it."""
_MAY_BE_FOR_A_RANK = frozenset({None, WaitReason.UNKNOWN, WaitReason.SHARED_LOCK, WaitReason.QUEUE})
"""A task, a pool or a signal has a giver of its own."""


@dataclass(frozen=True, slots=True)
class AloneElsewhere(Explanation):
    """The culprits wait for ``waiting``, who are more, and all of whom wait at one line for what nobody brings."""

    waiting: tuple[int, ...]


def alone_elsewhere(case: Case, roots: tuple[int, ...]) -> Blame[AloneElsewhere] | None:
    """The blame of the ranks that wait for ``roots``, where these are more and alike; None else."""
    kinds = {case.activities[rank].kind for rank in roots}
    reasons = {case.activities[rank].reason for rank in roots}
    if not reasons <= _MAY_BE_FOR_A_RANK:
        return None
    if len(roots) < 2 or case.hidden or not kinds <= _UNNAMED or len(kinds) > 1:
        return None
    if any(lock_files(case, rank) for rank in roots):
        return None  # whose lock that is, and since when, is known
    if any(activity.moving for activity in case.activities.values()) or not at_one_line(case, roots):
        return None
    few = tuple(sorted({wait.waiter for wait in case.graph.waits} & case.seen - set(roots)))
    where = case.activities[roots[0]].where
    if not few or len(few) >= len(roots) or where is None or own_name_polled(case.sources, where) is not None:
        return None
    proved = nobody_acts(case, roots) and not any(has_children(case, rank) for rank in roots)
    sure = f"{ranks_text(roots)} are at one line, and {ranks_text(few)} alone {'is' if len(few) == 1 else 'are'} not"
    return Blame(AloneElsewhere(roots), few, proved=proved, confidence=Confidence.LIKELY, sure=sure)
