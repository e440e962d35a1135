"""Messages that pass each other by: sent under one tag, expected under another."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from hangdoc.diagnosis.activity import pending_p2p
from hangdoc.diagnosis.case import Case
from hangdoc.diagnosis.landmarks import below_user
from hangdoc.diagnosis.sequences import site_of, user_stack
from hangdoc.model.diagnosis import Activity
from hangdoc.model.journal import Journal, PointToPoint
from hangdoc.model.process import Frame


@dataclass(frozen=True, slots=True)
class CrossedTags:
    """``receiver`` waits for tag ``wanted`` from ``sender``, of whose messages to it one with tag ``sent`` is left."""

    receiver: int
    sender: int
    wanted: int
    sent: int
    frame: Frame | None
    """Where the message was sent."""
    strayed: int | None
    """The one of the two that used another tag at this line before, where only one did."""


def crossed_tags(case: Case) -> CrossedTags | None:
    """The first pair of stuck ranks of which one waits for a message that the other sent under another tag."""
    for rank in sorted(case.graph.stuck):
        activity = case.activities[rank]
        sender = case.activities.get(activity.peer) if activity.peer is not None else None
        if activity.kind != "recv" or sender is None:
            continue
        found = _from_journals(case, activity, sender) or _from_stacks(activity, sender)
        if found is not None:
            return found
    return None


def _from_journals(case: Case, receiver: Activity, sender: Activity) -> CrossedTags | None:
    theirs, mine = (case.ranks[a.rank].journal for a in (sender, receiver))
    waiting = pending_p2p(case.ranks[receiver.rank], receiver.stack)
    if theirs is None or mine is None or waiting is None or waiting.peer != sender.rank:
        return None
    sends = [m for m in theirs.point_to_points if m.op == "send" and m.peer == receiver.rank]
    recvs = [m for m in mine.point_to_points if m.op == "recv" and m.peer == sender.rank]
    left = Counter(m.tag for m in sends)
    left.subtract(m.tag for m in recvs)
    if left[waiting.tag] >= 0:
        return None
    message = next((m for m in reversed(sends) if left[m.tag] > 0), None)
    if message is None:
        return None
    new = [_is_new(theirs, message, sends), _is_new(mine, waiting, recvs)]
    strayed = sender.rank if new == [True, False] else receiver.rank if new == [False, True] else None
    frames = user_stack(theirs.stack(message.stack))
    return CrossedTags(receiver.rank, sender.rank, waiting.tag, message.tag, frames[0] if frames else None, strayed)


def _is_new(journal: Journal, message: PointToPoint, messages: list[PointToPoint]) -> bool:
    """Did the same line only ever use other tags before?"""
    site = site_of(journal.stack(message.stack))
    before = [m.tag for m in messages if m is not message and site_of(journal.stack(m.stack)) == site]
    return bool(before) and message.tag not in before


def _from_stacks(receiver: Activity, sender: Activity) -> CrossedTags | None:
    if sender.kind != "send" or sender.peer != receiver.rank:
        return None
    wanted, sent = _tag(receiver), _tag(sender)
    if wanted is None or sent is None or wanted == sent:
        return None
    return CrossedTags(receiver.rank, sender.rank, wanted, sent, sender.where, None)


def _tag(activity: Activity) -> int | None:
    for frame in below_user(activity.stack):
        for local in frame.locals:
            if local.name == "tag" and local.value.isdigit():
                return int(local.value)
    return None
