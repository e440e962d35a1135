"""HD201 of a call that comes before the message without which the others do not come to it."""

from __future__ import annotations

from hangdoc.diagnosis.blame.call_before_message import CallBeforeMessage
from hangdoc.diagnosis.causes.finding import Finding, others_of
from hangdoc.diagnosis.causes.phrases import at, line_of, place, where_they_wait
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame
from hangdoc.model.kinds import ActivityKind
from hangdoc.model.message import Joined, joined, sentence

_MOST = 2
"""Conditions that are named; chosen by hand: a longer list helps nobody."""


@cause("HD201", explains=CallBeforeMessage, order=287)
def call_before_message(case: Case, blame: Blame[CallBeforeMessage]) -> Finding:
    """HD201: a rank waits for the others in a collective, and they wait for the message that it passes behind it."""
    found = blame.found
    now, waiter = case.activities[found.rank], case.activities[found.waiter]
    verb, to = ("send", "to") if waiter.kind == ActivityKind.RECV else ("receive", "from")
    others = tuple(rank for rank in others_of(case, blame) if rank != found.waiter)
    under = list(found.under[-_MOST:])
    return Finding(
        "HD201",
        sentence(
            [
                [f"rank {found.rank} waits in ", now.op or now.text, at(now.where), f", and {verb}s {to} rank "],
                [f"{found.waiter} only after it, at ", line_of(found.line), f"; rank {found.waiter} comes to that "],
                [f"call only after its {waiter.kind} at ", place(waiter.where)],
            ],
            where_they_wait(case, others),
        ),
        joined(
            "each of the two waits for what the other one does after its own wait",
            [f"rank {found.rank} came to its call under ", Joined(under, " and ")] if under else "",
        ),
        [f"let rank {found.rank} {verb} before it makes the call: what all ranks must join comes after the exchange"],
        decided_at=under[-1] if under else None,
    )
