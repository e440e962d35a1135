"""HD508 of a rank that asks for ever whether a message on gloo is complete."""

from __future__ import annotations

from hangdoc.diagnosis.blame.only_polled import OnlyPolled
from hangdoc.diagnosis.causes.finding import Finding, others_of
from hangdoc.diagnosis.causes.phrases import at, where_they_wait
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame
from hangdoc.model.message import Does, Verb, joined, sentence


@cause("HD508", explains=OnlyPolled, order=371)
def only_polled(case: Case, blame: Blame[OnlyPolled]) -> Finding:
    """HD508: `is_completed()` of a message is polled, and only `wait()` would complete it."""
    where = case.activities[blame.culprits[0]].where
    loop = blame.found.loop
    return Finding(
        "HD508",
        sentence(
            [
                [Does(blame.culprits, "polls", "poll"), " for a message", at(where)],
                [Verb(blame.culprits, ", and never calls", ", and never call"), " wait() on it"],
            ],
            where_they_wait(case, others_of(case, blame)),
        ),
        joined(
            ["the loop ", loop, " has not ended"],
            "on gloo, is_completed() of an isend or irecv stays False until wait() was called, also where the data is "
            "there",
        ),
        "call wait() on the work (in a thread of its own where the rank has other things to do), or let the sender "
        "tell through the store that it has sent",
        decided_at=loop,
    )
