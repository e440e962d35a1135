"""HD507: two ranks that each wait for data from the other, over a connection of the program's own."""

from __future__ import annotations

from hangdoc.diagnosis.blame.both_read import BothRead
from hangdoc.diagnosis.causes.finding import Finding
from hangdoc.diagnosis.causes.phrases import line_of, place, where_they_wait
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame
from hangdoc.model.message import Does, Joined, Message, Ranks, joined, sentence


@cause("HD507", explains=BothRead, order=324)
def both_read(case: Case, blame: Blame[BothRead]) -> Finding:
    """HD507: one has asked and waits for the answer, and the other one waits for more from it."""
    found = blame.found
    server, asker = case.activities[found.server], case.activities[found.asker]
    rest = tuple(sorted(case.seen - {found.server, found.asker}))
    sent: Message = [f"rank {found.asker} sends at ", line_of(found.at), " before it waits there"]
    if found.served:
        why = joined(
            [sent, f", and rank {found.server} has got it or a part of it, and waits for the rest"],
            [
                Does(found.served, "has", "have"),
                " been served there, so what ",
                Ranks(blame.culprits),
                " sends differs",
            ],
            ["what it sends is decided by ", Joined(found.by, " and ")] if found.by else "",
        )
        fix = "end what is sent the same way on every path (a length before it, a mark behind it, or "
        fix += "`shutdown(SHUT_WR)`), and give the read a timeout"
    else:
        why = joined(
            [sent, f"; rank {found.server} has come to wait for more without an answer"],
            ["whether it answers is decided by ", Joined(found.by, " and ")] if found.by else "",
        )
        fix = "answer on every way through the loop, with an error or an empty answer where there is nothing to say, "
        fix += "and give the read a timeout"
    return Finding(
        "HD507",
        sentence(
            [f"rank {found.asker} waits for an answer of rank {found.server} at ", place(asker.where)],
            [f"rank {found.server} waits for data from rank {found.asker} at ", place(server.where)],
            where_they_wait(case, rest) if rest else "",
        ),
        why,
        fix,
        decided_at=found.by[-1] if found.by else None,
    )
