"""HD202 of a rank that waits for more messages than its peers pass: its own loop, or its own condition, decides."""

from __future__ import annotations

from hangdoc.diagnosis.blame.message_blame import ExchangeTooMany, OneTooMany
from hangdoc.diagnosis.causes.finding import Finding, others_of
from hangdoc.diagnosis.causes.phrases import at, doing, where_they_wait
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.causes.unmatched import awaited_under
from hangdoc.diagnosis.condition.matching_message import issued_from
from hangdoc.diagnosis.condition.skipped_alone import made_alone
from hangdoc.diagnosis.condition.ways_past import loop_around, ways_past
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame
from hangdoc.model.message import Does, Joined, Message, Ranks, Verb, joined, sentence
from hangdoc.model.wording import single_spaced


@cause("HD202", explains=ExchangeTooMany, order=291)
def exchange_too_many(case: Case, blame: Blame[ExchangeTooMany]) -> Finding:
    """HD202: a rank is in an exchange of messages that its peers have gone past.

    Example: each subdomain exchanges its edges once a step, and rank 3, which takes two substeps, does so twice.
    """
    waiter = case.activities[blame.culprits[0]]
    stack, peers = issued_from(case, waiter), blame.found.peers
    under, loop = ways_past(case, stack)[0], loop_around(case, stack)
    made = made_alone(case, waiter.rank)
    decided = made or under or ([loop] if loop is not None else [])
    rank, others = waiter.rank, Ranks(peers) if peers else "all others"
    why: Message = [f"rank {rank} has issued messages to and from ", others, ", and none of these has issued its part"]
    if not peers:
        why = f"all others have gone past that exchange: rank {rank} makes one more than they do"
    decides: Message = ["whether" if under else "how often", f" rank {rank} comes there depends on "]
    if made:
        decides = f"by what it ran or wrote, rank {rank} alone has passed messages under "
    return Finding(
        "HD202",
        sentence(
            [Does((rank,), "waits", "wait"), " in ", doing(waiter), ", in an exchange that no other rank is in"],
            where_they_wait(case, others_of(case, blame)),
        ),
        joined(why, [decides, Joined(decided, " and ")] if decided else ""),
        "let all ranks exchange equally often: what decides about it has to be the same on all of them (all_reduce it)",
        decided_at=decided[-1] if decided else None,
    )


@cause("HD202", explains=OneTooMany, order=292)
def one_too_many(case: Case, blame: Blame[OneTooMany]) -> Finding:
    """HD202: a rank expects one message more than its peer passes in a round."""
    found = blame.found
    waiter, peer = case.activities[found.rank], case.activities[found.peer]
    stack = issued_from(case, waiter)
    under, loop = awaited_under(case, waiter), loop_around(case, stack)
    before: Message = (
        f"in each round before, rank {found.rank} passed {found.usual} such messages with rank {found.peer}, which has "
        "issued as many this time"
    )
    if found.siblings:
        passed: Message = [f" passed {found.usual} such messages at that line with other ranks"]
        before = [Ranks(found.siblings), passed, f", and rank {found.peer} has issued as many for rank {found.rank}"]
    if found.onward:
        handed = (
            f"rank {found.peer} has sent rank {found.rank} {found.usual} messages, as many as that one has handed to "
        )
        before = [handed, Ranks(found.onward), Verb(found.onward, ", which is through", ", which are through")]
    than: Message = (
        ["than ", Ranks(found.siblings), Verb(found.siblings, " has", " have"), " passed"]
        if found.siblings
        else ["than it has handed to ", Ranks(found.onward)]
        if found.onward
        else "than ever"
    )
    return Finding(
        "HD202",
        sentence(
            [
                [f"rank {found.rank} waits for one {waiter.kind} more with rank {found.peer} ", than],
                [at(waiter.where), f": rank {found.peer} is in ", single_spaced(peer.text), at(peer.where)],
            ]
        ),
        joined(
            before,
            *under,
            "" if under or loop is None else ["how many it awaits depends on ", loop],
        ),
        f"give every {waiter.kind} its partner: the same number of messages, peer and tag on both sides",
        decided_at=loop if (found.siblings or found.onward) and not under else None,
    )
