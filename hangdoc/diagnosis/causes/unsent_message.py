"""HD101 and HD102 of clients of a service that waits for a message of theirs before it answers the others, or that ask
it for something else than these."""

from __future__ import annotations

from hangdoc.diagnosis.blame.other_request import OtherRequest
from hangdoc.diagnosis.blame.unsent_message import UnsentMessage
from hangdoc.diagnosis.causes.deciding import what_decided
from hangdoc.diagnosis.causes.finding import Finding
from hangdoc.diagnosis.causes.left_traces import left_by
from hangdoc.diagnosis.causes.phrases import place, where_they_wait
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.causes.threads import ways_past
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame
from hangdoc.model.message import Does, Joined, Ranks, joined, sentence

_MOST_CONDITIONS = 2
"""Conditions that a sentence names; chosen by hand."""


@cause("HD101", "HD102", explains=UnsentMessage, order=85)
def not_sent(case: Case, blame: Blame[UnsentMessage]) -> Finding | None:
    """HD101: a service waits for data of a client that has gone on without sending it; HD102 where the client has left
    the loop of these exchanges."""
    found, culprits = blame.found, blame.culprits
    node, waiting = found.server, found.waiting
    if node is None:
        return None
    loop = found.branch_point if found.branch_point is not None and found.branch_point.uneven else None
    first = case.activities[waiting[0]]
    decided = what_decided(case, blame) or left_by(case, culprits, waiting)
    skips = list(dict.fromkeys(ways_past(case, waiting[0], culprits[0])))[:_MOST_CONDITIONS] if not decided else []
    return Finding(
        "HD102" if loop is not None else "HD101",
        sentence(
            [
                [Does(waiting, "waits", "wait"), f" for data from rank {node.rank} at ", place(first.where)],
                [f", whose thread `{node.thread.name}` waits at ", place(node.where), " for data of ", Ranks(culprits)],
            ],
            where_they_wait(case, tuple(rank for rank in sorted(case.activities) if rank not in waiting)),
        ),
        joined(
            [f"rank {node.rank} answers when a message of ", Ranks(culprits), " has come too"],
            decided,
            [Joined(skips, " or "), " may have kept ", Ranks(culprits), " from sending it"] if skips else "",
        ),
        "let every rank go through the whole exchange in each round (with an empty message in place of none), or let "
        "the service answer without those that have left it",
    )


@cause("HD101", explains=OtherRequest, order=83)
def asks_for_another(case: Case, blame: Blame[OtherRequest]) -> Finding:
    """HD101: a condition went differently, and each side waits for an answer that takes a request of the other."""
    found, culprits = blame.found, blame.culprits
    first, odd = case.activities[found.waiting[0]], case.activities[culprits[0]]
    return Finding(
        "HD101",
        sentence(
            [Does(culprits, "waits", "wait"), f" for an answer of rank {found.server} at ", place(odd.where)],
            [Does(found.waiting, "waits", "wait"), " for another one at ", place(first.where)],
        ),
        joined("neither is given: each of them may take the request of all ranks", what_decided(case, blame)),
        "let all ranks agree on the condition before it is tested (all_reduce or broadcast the value), or make one "
        "request on both ways",
    )
