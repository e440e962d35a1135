"""HD504: ranks wait until another one lets a lock go, and it went on without doing so; or for one that is older."""

from __future__ import annotations

from hangdoc.diagnosis.blame.awaited_lock import AwaitedLock
from hangdoc.diagnosis.blame.left_lock import OlderLock
from hangdoc.diagnosis.causes.finding import Finding, others_of
from hangdoc.diagnosis.causes.phrases import at, line_of, place, where_they_wait
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame
from hangdoc.model.kinds import Confidence
from hangdoc.model.message import Condition, Does, Message, Place, Ranks, joined, sentence


@cause("HD504", explains=AwaitedLock, order=356)
def awaited_lock_kept(case: Case, blame: Blame[AwaitedLock]) -> Finding:
    """HD504: the culprit took what the others wait for at another line, and its way out led round letting it go."""
    found, culprits = blame.found, blame.culprits
    line, text = found.let_go
    took = "may have taken it" if blame.confidence == Confidence.POSSIBLE else "took it"
    releases: Message = [f"`{text}` (", Place(found.taken_at.file, line), ")"]
    why: Message = ["an exception, or another way out, leads past ", releases]
    if found.test is not None:
        been = "has" if len(culprits) == 1 else "have"
        alone: Message = [", and ", Ranks(culprits), f" alone {been} been there"] if found.ran else ""
        why = [found.test, " leads out at ", line_of(found.left_at), " before ", releases, alone]
    rest = tuple(rank for rank in others_of(case, blame) if rank not in found.waiting)
    return Finding(
        "HD504",
        sentence(
            [
                [Does(found.waiting, "waits", "wait"), at(case.activities[found.waiting[0]].where)],
                [" until a lock is let go, and ", Ranks(culprits), f" {took} at ", place(found.taken_at)],
                " and went on without letting it go",
            ],
            where_they_wait(case, (*culprits, *rest)),
        ),
        joined(why),
        "take such locks with `with`, or let them go in `finally`, so that every way out lets them go; give the wait "
        "a timeout",
        decided_at=found.test,
    )


@cause("HD504", explains=OlderLock, order=353)
def older_lock(case: Case, blame: Blame[OlderLock]) -> Finding:
    """HD504: the culprits wait for a lock that is a file, and all others found one there as well and came past."""
    culprits, past = blame.culprits, blame.found.past
    seen = case.execution.parting(culprits, past)
    parted = Condition(seen.guard.condition, seen.frame.file, seen.guard.line) if seen is not None else None
    value = seen is not None and seen.guard.taken is (seen.side == 0)
    came: Message = (
        [parted, f" was {value} on ", Ranks(culprits), f" and {not value} on ", Ranks(past)] if parted else ""
    )
    return Finding(
        "HD504",
        sentence(
            [
                [Does(culprits, "keeps", "keep"), " trying to take a lock that is a file"],
                [at(case.activities[culprits[0]].where), ", and that an earlier run seems to have left"],
            ],
            where_they_wait(case, past),
        ),
        joined([Ranks(past), " found a lock there at first, too"], [parted, came] if parted is not None else ""),
        "remove the lock file if no other program uses it, and lock with flock (filelock.FileLock), which the kernel "
        "lets go when its owner ends",
        decided_at=parted,
        recorded=parted is not None,
    )
