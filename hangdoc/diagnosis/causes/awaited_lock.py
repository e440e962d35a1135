"""HD504: ranks wait until another one lets a lock go, and it went on without doing so."""

from __future__ import annotations

from hangdoc.diagnosis.blame.awaited_lock import AwaitedLock
from hangdoc.diagnosis.causes.finding import Finding, others_of
from hangdoc.diagnosis.causes.phrases import at, line_of, place, where_they_wait
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame
from hangdoc.model.kinds import Confidence
from hangdoc.model.message import Does, Message, Place, Ranks, joined, sentence


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
