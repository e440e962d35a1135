"""HD505: a service has lent what a rank waits for to others, one of which alone has asked for more."""

from __future__ import annotations

from hangdoc.diagnosis.blame.asked_more import AskedMore
from hangdoc.diagnosis.causes.finding import Finding
from hangdoc.diagnosis.causes.phrases import cited, place, where_they_wait
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame
from hangdoc.model.message import Does, Place, Ranks, Verb, sentence


@cause("HD505", explains=AskedMore, order=84)
def holds_more(case: Case, blame: Blame[AskedMore]) -> Finding:
    """HD505: the others give back what they have got only after a call that needs the rank which waits for it."""
    found, culprits = blame.found, blame.culprits
    server, first = found.chain.last, case.activities[found.waiting[0]]
    condition = cited(found.left.guard, found.left.file)
    return Finding(
        "HD505",
        sentence(
            [
                [Does(found.waiting, "waits", "wait"), f" for the answer of {found.request}() at ", place(first.where)],
                [f", which rank {server.rank} holds back at ", place(server.where), "; ", Ranks(culprits), " alone "],
                [Verb(culprits, "has", "have"), f" called {found.request}() once more"],
            ],
            where_they_wait(case, tuple(rank for rank in sorted(case.activities) if rank not in found.waiting)),
        ),
        [
            [condition, " led it there (", Place(found.left.file, found.left.line), "), and what it has got it would "],
            ["give back after the call in which it waits for ", Ranks(found.waiting)],
        ],
        "take all that is needed in one request, or give it back before a call that the others have to join",
        decided_at=condition,
    )
