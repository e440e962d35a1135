"""HD202 of a message that was withdrawn, because nothing held its work."""

from __future__ import annotations

from hangdoc.diagnosis.blame.dropped_work import DroppedWork
from hangdoc.diagnosis.causes.finding import Finding, others_of
from hangdoc.diagnosis.causes.phrases import at, place, where_they_wait
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame
from hangdoc.model.message import joined, sentence


@cause("HD202", explains=DroppedWork, order=238)
def withdrawn(case: Case, blame: Blame[DroppedWork]) -> Finding:
    """HD202: isend or irecv was called, and its work was let go of before the message was passed."""
    found = blame.found
    waiter = case.activities[found.waiter]
    to = "to" if found.way == "send" else "from"
    others = tuple(rank for rank in others_of(case, blame) if rank != found.waiter)
    return Finding(
        "HD202",
        sentence(
            [
                [
                    f"rank {found.rank} called i{found.way} {to} rank {found.waiter}",
                    at(found.frame),
                    " and dropped its ",
                ],
                [f"work before the message was passed; rank {found.waiter} still waits for it in {waiter.kind} at "],
                place(waiter.where),
            ],
            where_they_wait(case, (found.rank, *others)),
        ),
        joined(
            f"both ranks have issued the message, and on rank {found.rank} it is no longer under way",
            "gloo withdraws a message when the last reference to its work goes: where the result of isend is not kept, "
            "or what keeps it ends first",
        ),
        f"keep what i{found.way} returns, and its tensor, and call wait() on it before they go out of scope",
    )
