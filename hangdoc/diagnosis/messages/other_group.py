"""A message that is sent in one process group and awaited in another: torch pairs messages within a group only.

Example: rank 4 sends to rank 0 in group 1, and rank 0 waits for a message from rank 4 in group 2; each of them has
issued as many messages of the pair as the other.
"""

from __future__ import annotations

from collections import Counter
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
    found = [
        each
        for sender in journals
        for receiver in journals
        if (each := _between(journals, sender, receiver)) is not None and {sender, receiver} & case.graph.stuck
    ]
    return found[0] if len(found) == 1 else None


def _between(journals: dict[int, Journal], sender: int, receiver: int) -> OtherGroup | None:
    """The mismatch on the way from one rank to the other."""
    sends = _passed(journals[sender], "send", receiver)
    recvs = _passed(journals[receiver], "recv", sender)
    left = Counter(message.group for message in sends)
    left.subtract(message.group for message in recvs)
    odd = {group: count for group, count in left.items() if count}
    if sorted(odd.values()) != [-1, 1]:
        return None
    sent, wanted = (next(m for m in reversed(side) if m.group in odd) for side in (sends, recvs))
    lines = _line(journals[sender], sent), _line(journals[receiver], wanted)
    if lines[0] is None or lines[1] is None:
        return None
    labels = _label(journals[sender], sent.group), _label(journals[receiver], wanted.group)
    return OtherGroup(sender, receiver, *labels, lines[0], lines[1])


def _passed(journal: Journal, way: str, peer: int) -> list[PointToPoint]:
    return [m for m in journal.point_to_points if message_way(m.op) == way and m.peer == peer]


def _line(journal: Journal, message: PointToPoint) -> Frame | None:
    return next(iter(user_stack(journal.stack(message.stack))), None)


def _label(journal: Journal, name: str) -> str:
    group = next((each for each in journal.groups if each.name == name), None)
    return group_label(name, group.description if group is not None else "")
