"""HD504: a rank became the owner of a key of the store, and never gave it back."""

from __future__ import annotations

from hangdoc.diagnosis.blame.store_lock import StoreLock
from hangdoc.diagnosis.causes.finding import Finding
from hangdoc.diagnosis.causes.phrases import at, where_they_wait
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame
from hangdoc.model.message import Does, Ranks, joined, sentence


@cause("HD504", explains=StoreLock, order=358)
def owner_that_went_on(case: Case, blame: Blame[StoreLock]) -> Finding:
    """HD504: the others try to become the owner, and the culprit went on as such."""
    found, culprits = blame.found, blame.culprits
    return Finding(
        "HD504",
        sentence(
            [
                [Does(found.trying, "keeps", "keep"), " trying to become the owner of a key of the store"],
                [at(found.tried_at), "; ", Ranks(culprits), " became it and did not give it back"],
            ],
            where_they_wait(case, culprits),
        ),
        joined(
            ["only one at a time can be the owner, and ", Ranks(culprits), " is past that line"],
            [found.test, " leads out of the function without what follows there"] if found.test is not None else "",
        ),
        "give it back in `finally`, so that every way out does, or let an owner's claim end by itself after a time",
        decided_at=found.test,
    )
