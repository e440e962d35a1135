"""A message that is sent in one process group and awaited in another: torch pairs messages within a group only.

Example: rank 4 sends to rank 0 in group 1, and rank 0 waits for a message from rank 4 in group 2; each of them has
issued as many messages of the pair as the other.
"""

from __future__ import annotations

from dataclasses import dataclass

from hangdoc.diagnosis.calls.history import group_label
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Explanation
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.model.journal import Journal, PointToPoint
from hangdoc.model.operations import message_way
from hangdoc.model.process import Frame


@dataclass(frozen=True, slots=True)
class OtherGroup(Explanation):
    """``sender`` has sent in group ``sent`` what ``receiver`` awaits in group ``wanted``: labels for people."""

    sender: int
    receiver: int
    sent: str
    wanted: str
    sent_at: Frame
    wanted_at: Frame


def in_other_group(case: Case) -> OtherGroup | None:
    """The only pair of ranks whose messages are as many in all, and not in each group; None if there are none or
    several, or if some messages were not seen."""
    journals = {rank: each.journal for rank, each in case.ranks.items() if each.journal is not None}
    if not case.graph.stuck or len(journals) < len(case.ranks):
        return None
    if not all(journal.has_all_messages for journal in journals.values()):
        return None
    sent = {rank: _by_peer(journal, "send") for rank, journal in journals.items()}
    awaited = {rank: _by_peer(journal, "recv") for rank, journal in journals.items()}
    found = [
        each
        for sender, per_peer in sent.items()
        for receiver, sends in per_peer.items()
        if {sender, receiver} & case.graph.stuck and sender in awaited.get(receiver, {})
        if (each := _between(journals, (sender, receiver), sends, awaited[receiver][sender])) is not None
    ]
    return found[0] if len(found) == 1 else None


def _between(
    journals: dict[int, Journal], pair: tuple[int, int], sends: list[PointToPoint], recvs: list[PointToPoint]
) -> OtherGroup | None:
    """The mismatch on the way from the first rank of the pair to the other.

    One message of many is in another group: who left one out, and has sent the next, is out of step from there on.
    Example: sent in groups 1, 2, 1 and awaited in 1, 2, 2 → the third; awaited in 2, 1, 2 → None.
    """
    sender, receiver = pair
    if len(sends) != len(recvs):
        return None
    odd = [(mine, theirs) for mine, theirs in zip(sends, recvs, strict=True) if mine.group != theirs.group]
    if len(odd) != 1:
        return None
    ((sent, wanted),) = odd
    lines = _line(journals[sender], sent), _line(journals[receiver], wanted)
    if lines[0] is None or lines[1] is None:
        return None
    labels = _label(journals[sender], sent.group), _label(journals[receiver], wanted.group)
    return OtherGroup(sender, receiver, *labels, lines[0], lines[1])


def _by_peer(journal: Journal, way: str) -> dict[int, list[PointToPoint]]:
    """Peer → the messages to it, or from it, in the order in which the rank issued them."""
    found: dict[int, list[PointToPoint]] = {}
    for message in journal.point_to_points:
        if message_way(message.op) == way:
            found.setdefault(message.peer, []).append(message)
    return found


def _line(journal: Journal, message: PointToPoint) -> Frame | None:
    return next(iter(user_stack(journal.stack(message.stack))), None)


def _label(journal: Journal, name: str) -> str:
    group = next((each for each in journal.groups if each.name == name), None)
    return group_label(name, group.description if group is not None else "")
