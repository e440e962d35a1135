"""HD202 of a rank that waits for more messages than its peers pass: its own loop, or its own condition, decides."""

from __future__ import annotations

from hangdoc.diagnosis.blame.message_blame import ExchangeTooMany
from hangdoc.diagnosis.causes.finding import Finding, others_of
from hangdoc.diagnosis.causes.phrases import doing, where_they_wait
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.condition.matching_message import issued_from
from hangdoc.diagnosis.condition.skipped_alone import made_alone
from hangdoc.diagnosis.condition.ways_past import loop_around, ways_past
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame
from hangdoc.model.message import Does, Joined, Message, Ranks, joined, sentence


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
