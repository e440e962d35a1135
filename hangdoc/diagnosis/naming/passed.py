"""What two ends of a message have passed: other tags, or fewer messages than the one that waits expects.

Example: 'rank 3 has issued 8 recvs from rank 2, and rank 2 7 sends to it'.
"""

from __future__ import annotations

from hangdoc.diagnosis.messages.faults import crossed_tags, one_for_each_call
from hangdoc.diagnosis.naming.facts import Facts
from hangdoc.model.kinds import MESSAGES, ActivityKind
from hangdoc.model.message import Message
from hangdoc.model.operations import message_way


def passed(facts: Facts) -> Message:
    """What differs between the ends of the first message that a culprit has to do with; '' where nothing is seen to."""
    culprits = {*facts.culprits}
    for tags in crossed_tags(facts.case):
        if culprits & {tags.sender, tags.receiver}:
            said = f"rank {tags.sender} sends to rank {tags.receiver} with tag {tags.sent}"
            wants = f"rank {tags.receiver} waits for tag {tags.wanted}"
            return [said, ", and ", wants, ": a recv gets messages of its own tag only"]
    for rank, activity in facts.case.activities.items():
        peer = activity.peer
        if activity.kind not in MESSAGES or peer is None or culprits.isdisjoint((rank, peer)):
            continue
        ways = ("recv", "send") if activity.kind == ActivityKind.RECV else ("send", "recv")
        here, there = (_issued(facts, *each) for each in ((rank, peer, ways[0]), (peer, rank, ways[1])))
        if here is not None and there is not None and here > there:
            to, back = ("from", "to") if ways[0] == "recv" else ("to", "from")
            mine, theirs = _many(here, ways[0]), _many(there, ways[1])
            return f"rank {rank} has issued {mine} {to} rank {peer}, and rank {peer} {theirs} {back} it"
    return ""


def _issued(facts: Facts, rank: int, peer: int, way: str) -> int | None:
    """How many messages of that way the rank has issued with the peer; None where not all of them are known."""
    snapshot = facts.case.ranks.get(rank)
    journal = snapshot.journal if snapshot is not None else None
    if journal is None or not journal.has_all_messages or any(each.peer < 0 for each in journal.point_to_points):
        return None  # what it took of any rank may be of this one
    return sum(message_way(each.op) == way and each.peer == peer for each in one_for_each_call(journal))


def _many(count: int, way: str) -> str:
    """'1 send', '0 recvs'."""
    return f"{count} {way}{'' if count == 1 else 's'}"
