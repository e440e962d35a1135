"""HD507: a rank serves connections until each is done with, and some ranks went on without finishing theirs."""

from __future__ import annotations

from hangdoc.diagnosis.blame.not_finished import NotFinished
from hangdoc.diagnosis.causes.finding import Finding
from hangdoc.diagnosis.causes.left_traces import left_by_culprits
from hangdoc.diagnosis.causes.phrases import place, where_they_wait
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame
from hangdoc.model.message import Does, Message, Ranks, conditions_in, joined, sentence


@cause("HD507", explains=NotFinished, order=366)
def not_finished(case: Case, blame: Blame[NotFinished]) -> Finding:
    """HD507: the server waits for more on the connections of the culprits, which have gone on."""
    found, culprits = blame.found, blame.culprits
    decided = left_by_culprits(case, blame)
    waits: Message = [f"rank {found.server} waits at ", place(case.activities[found.server].where)]
    ended: Message = [f"rank {found.server} is done with the connections of ", Ranks(found.done)]
    return Finding(
        "HD507",
        sentence(
            [waits, " for more on the connections of ", Ranks(culprits), ", who have gone on"],
            where_they_wait(case, culprits),
        ),
        joined(
            [ended, ", and those of ", Does(culprits, "is", "are"), " still open"],
            "a last message, or the end, has been left out there",
            decided,
        ),
        "end each connection on every way out (`with`, `finally`), and let the server take a connection that is closed "
        "for one that is done; give its wait a timeout",
        decided_at=next(conditions_in(decided), None),
    )
