"""Messages that do not meet: sent under one tag and expected under another, or left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from hangdoc.diagnosis.condition.divergence_point import passages
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Explanation
from hangdoc.diagnosis.frames.landmarks import number_below_user
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.frames.operations import message_way
from hangdoc.diagnosis.frames.stacks import site_of, user_stack
from hangdoc.diagnosis.state.activity import pending_p2p
from hangdoc.model.diagnosis import Activity
from hangdoc.model.journal import Journal, PointToPoint
from hangdoc.model.kinds import ActivityKind
from hangdoc.model.process import Frame, Stack

_COUNTERPART = {ActivityKind.SEND: "recv", ActivityKind.RECV: "send"}


@dataclass(frozen=True, slots=True)
class TagMismatch(Explanation):
    """``receiver`` waits for tag ``wanted`` from ``sender``, of whose messages to it one with tag ``sent`` is left."""

    receiver: int
    sender: int
    wanted: int
    sent: int
    frame: Frame | None
    """Where the message was sent."""
    strayed: int | None
    """The one of the two that used another tag at this line before, where only one did."""


def crossed_tags(case: Case) -> TagMismatch | None:
    """A pair of stuck ranks of which one waits for a message that the other sent under another tag. One that is in
    several such pairs is the one that strayed."""
    pairs = list(_crossed(case))
    often = Counter(rank for pair in pairs for rank in (pair.sender, pair.receiver))
    common = [rank for rank, count in often.items() if count == len(pairs) > 1]
    if len(common) == 1:
        return replace(pairs[0], strayed=common[0])
    return pairs[0] if pairs else None


def _crossed(case: Case) -> Iterator[TagMismatch]:
    for rank in sorted(case.graph.stuck):
        activity = case.activities[rank]
        sender = case.activities.get(activity.peer) if activity.peer is not None else None
        if activity.kind != ActivityKind.RECV or sender is None:
            continue
        found = _from_journals(case, activity, sender) or _from_stacks(activity, sender)
        if found is not None:
            yield found


def _from_journals(case: Case, receiver: Activity, sender: Activity) -> TagMismatch | None:
    theirs, mine = (case.ranks[a.rank].journal for a in (sender, receiver))
    known = [each.message for each in case.waiting_messages.get(receiver.rank, ()) if each.message.peer == sender.rank]
    waiting = known[0] if known else pending_p2p(case.ranks[receiver.rank], receiver.stack)
    if theirs is None or mine is None or waiting is None or waiting.peer != sender.rank:
        return None
    sends = [m for m in theirs.point_to_points if message_way(m.op) == "send" and m.peer == receiver.rank]
    recvs = [m for m in mine.point_to_points if message_way(m.op) == "recv" and m.peer == sender.rank]
    # Of what has completed, the partner may be forgotten.
    counted = theirs.has_all_messages and mine.has_all_messages
    left = Counter(m.tag for m in sends if counted or not m.completed)
    left.subtract(m.tag for m in recvs if counted or not m.completed)
    if left[waiting.tag] >= 0:
        return None
    message = next((m for m in reversed(sends) if left[m.tag] > 0 and (counted or not m.completed)), None)
    if message is None:
        return None
    new = [_is_new(theirs, message, sends), _is_new(mine, waiting, recvs)]
    strayed = sender.rank if new == [True, False] else receiver.rank if new == [False, True] else None
    frames = user_stack(theirs.stack(message.stack))
    return TagMismatch(receiver.rank, sender.rank, waiting.tag, message.tag, frames[0] if frames else None, strayed)


def _is_new(journal: Journal, message: PointToPoint, messages: list[PointToPoint]) -> bool:
    """Did the same line only ever use other tags before?"""
    site = site_of(journal.stack(message.stack))
    before = [m.tag for m in messages if m is not message and site_of(journal.stack(m.stack)) == site]
    return bool(before) and message.tag not in before


def _from_stacks(receiver: Activity, sender: Activity) -> TagMismatch | None:
    if sender.kind != ActivityKind.SEND or sender.peer != receiver.rank:
        return None
    wanted, sent = (number_below_user(each.stack, *names("tag_local")) for each in (receiver, sender))
    if wanted is None or sent is None or wanted == sent:
        return None
    return TagMismatch(receiver.rank, sender.rank, wanted, sent, sender.where, None)


@dataclass(frozen=True, slots=True)
class WrongPeer(Explanation):
    """One rank sends to another that never received from it, one waits for another that never sent to it, and ``rank``
    is an end of both: it took ``took`` for its peer, where ``waits`` waits for it."""

    rank: int
    op: str
    took: int
    waits: int
    frame: Frame | None
    """Where it issued the message."""


def wrong_peer(case: Case) -> WrongPeer | None:
    """A message that went to, or is expected from, another rank than the one that waits for it."""
    journals = {rank: snapshot.journal for rank, snapshot in case.ranks.items()}
    sends: set[tuple[int, int]] = set()
    recvs: set[tuple[int, int]] = set()
    for rank, journal in journals.items():
        for message in journal.point_to_points if journal is not None else ():
            if message.peer < 0:
                return None
            if message_way(message.op) == "send":
                sends.add((rank, message.peer))
            elif message_way(message.op) == "recv":
                recvs.add((message.peer, rank))
    # Between two ranks that have spoken before, the partner may only be late.
    sent, wanted = list(sends - recvs), list(recvs - sends)
    if len(sent) != 1 or len(wanted) != 1 or not set(sent[0]) <= set(journals):
        return None
    (sender, to), (source, receiver) = sent[0], wanted[0]
    # Of who has forgotten, or has no journal, nobody can say that it never did.
    if not all((j := journals.get(r)) is not None and j.has_all_messages for r in (sender, to, source, receiver)):
        return None
    if sender == source:
        found = (sender, "send", to, receiver)
    elif to == receiver:
        found = (receiver, "recv", source, sender)
    else:
        return None
    frame = _frame_of_last(journals[found[0]], found[1], found[2])
    return WrongPeer(*found, frame) if found[0] in case.graph.stuck and frame is not None else None


def _frame_of_last(journal: Journal | None, op: str, peer: int) -> Frame | None:
    for message in reversed(journal.point_to_points) if journal is not None else ():
        if message_way(message.op) == op and message.peer == peer and journal is not None:
            return next(iter(user_stack(journal.stack(message.stack))), None)
    return None


@dataclass(frozen=True, slots=True)
class LeftOut:
    """``rank`` once came by ``frame`` without the message that it had always passed to or from ``peer`` there."""

    rank: int
    peer: int
    op: str
    stack: Stack

    @property
    def frame(self) -> Frame | None:
        """The line."""
        return next(iter(user_stack(self.stack)), None)


def left_out(case: Case) -> LeftOut | None:
    """The message that another stuck rank waits for and that its only stuck partner left out for once."""
    found: list[LeftOut] = []
    for rank in sorted(case.graph.stuck):
        journal = case.ranks[rank].journal
        messages = journal.point_to_points if journal is not None else ()
        stacks = [journal.stack(m.stack) for m in messages] if journal is not None else []
        sites = [(m.op, m.peer, site_of(stack)) for m, stack in zip(messages, stacks, strict=True)]
        waiting = {
            (_COUNTERPART[a.kind], a.rank)
            for a in case.activities.values()
            if a.kind in _COUNTERPART and a.peer == rank and a.rank in case.graph.stuck
        }
        missing = [site for site in dict.fromkeys(sites) if site[:2] in waiting]
        found += [
            LeftOut(rank, site[1], site[0], stacks[sites.index(site)])
            for site in missing
            if any(count == usual - 1 for _, _, count, usual in passages(sites, site))
        ]
    return found[0] if len({left.rank for left in found}) == 1 else None
