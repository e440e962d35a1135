"""HD202: messages that name another rank than the one which waits for them."""

from __future__ import annotations

from hangdoc.diagnosis.causes.deciding import settings_told
from hangdoc.diagnosis.causes.finding import Finding, others_of
from hangdoc.diagnosis.causes.phrases import place, where_they_wait
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.condition.elsewhere.given_there import given_at
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame
from hangdoc.diagnosis.messages.faults import NamedByNobody, WrongPeer
from hangdoc.diagnosis.source.message_calls import peer_of
from hangdoc.model.message import Ranks, Verb, joined, sentence


@cause("HD202", explains=WrongPeer, order=250)
def wrong_peer(case: Case, blame: Blame[WrongPeer]) -> Finding | None:
    """HD202: the message went to another rank than the one that waits for it, or is expected from another."""
    found = blame.found
    sends = found.op == "send"
    line = place(found.frame)
    does, missed = ("sends to", "waits for a message from it") if sends else ("waits for a message from", "sends to it")
    others = tuple(r for r in others_of(case, blame) if r not in (found.took, found.waits))
    chosen, by = settings_told(given_at(case.sources, found.frame, lambda call: filter(None, [peer_of(call)])))
    return Finding(
        "HD202",
        sentence(
            [f"rank {found.rank} {does} rank {found.took} at ", line, f", and rank {found.waits} {missed}"],
            where_they_wait(case, others),
        ),
        joined(
            f"all other messages have their partner; rank {found.took} never "
            + ("receives from it" if sends else "sends to it")
            if case.has_history
            else f"rank {found.rank} names no other rank in any {found.op}",
            chosen,
        ),
        [f"check how rank {found.rank} computes its peer ({'dst' if sends else 'src'}) at ", line],
        decided_at=by,
    )


@cause("HD202", explains=NamedByNobody, order=255)
def named_by_nobody(case: Case, blame: Blame[NamedByNobody]) -> Finding:
    """HD202: ranks pass messages to ranks that never name them, and do the same among themselves."""
    found = blame.found
    culprits, peers, line = Ranks(found.ranks), Ranks(found.peers), place(found.frame)
    return Finding(
        "HD202",
        sentence(
            [culprits, " exchange messages with ", peers, " at ", line, ", which name other ranks there"],
            where_they_wait(case, others_of(case, blame)),
        ),
        [
            ["all messages of ", peers, " have a partner, and none of ", culprits, " has one: ", peers, " never "],
            [Verb(found.peers, "names", "name"), " them"],
        ],
        [
            ["check how ", culprits, " compute their peers at ", line, ": torch.distributed takes ranks of the job, "],
            "also in a group (dist.get_global_rank(group, n), or group_dst and group_src)",
        ],
    )
