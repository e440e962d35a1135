"""Messages without a partner: sent under one tag and expected under another, to the wrong rank, or left out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from hangdoc.diagnosis.condition.divergence_point import passages
from hangdoc.diagnosis.condition.later_in_turn import may_come_later
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.execution.parting import Seen
from hangdoc.diagnosis.frames.landmarks import number_below_user, plain
from hangdoc.diagnosis.frames.library import is_library
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.frames.stacks import Site, site_of
from hangdoc.model.diagnosis import Activity
from hangdoc.model.journal import Journal, PointToPoint
from hangdoc.model.kinds import ActivityKind
from hangdoc.model.operations import message_way
from hangdoc.model.process import Stack

_COUNTERPART = {ActivityKind.SEND: "recv", ActivityKind.RECV: "send"}


class OtherTags(NamedTuple):
    """``receiver`` waits for tag ``wanted`` of ``sender``, which waits in a send of tag ``sent`` to it."""

    receiver: int
    sender: int
    wanted: int
    sent: int


def crossed_tags(case: Case) -> list[OtherTags]:
    """Those of all stuck ranks. Example: 0 waits for tag 7 from 1, which sends it tag 8 → receiver 0, sender 1."""
    found = []
    for rank in sorted(case.graph.stuck):
        receiver = case.activities[rank]
        sender = case.activities.get(receiver.peer) if receiver.peer is not None else None
        if sender is None or (receiver.kind, sender.kind) != (ActivityKind.RECV, ActivityKind.SEND):
            continue
        wanted, sent = (number_below_user(each.stack, *names("tag_local")) for each in (receiver, sender))
        if sender.peer == rank and wanted is not None and sent is not None and wanted != sent:
            found.append(OtherTags(rank, sender.rank, wanted, sent))
    return found


def wrong_peer(case: Case) -> frozenset[int]:
    """The stuck rank that passed a message to, or expects one from, another rank than the one that waits for it; none
    unless there is exactly one.

    Example: rank 0 sends to 1, which never receives from it; rank 2 waits for 0, which never sent to it → 0.
    """
    journals = {rank: snapshot.journal for rank, snapshot in case.ranks.items()}
    ways = _ways(journals)
    if ways is None:
        return frozenset()
    # Between two ranks that have passed messages before, the partner may only be late. Who waits behind the one that
    # took a wrong peer has no part in it.
    sent, wanted = ways[0] - ways[1], ways[1] - ways[0]
    mixed = [(a, b) for a in sent for b in wanted if (a[0] == b[0]) != (a[1] == b[1])]
    if len(mixed) != 1 or not set(mixed[0][0]) <= set(journals):
        return frozenset()
    (sender, to), (source, receiver) = mixed[0]
    if len(sent) + len(wanted) > len(mixed[0]) and not case.graph.dissolves((sender if sender == source else to,)):
        return frozenset()
    # A journal that is missing, or that dropped old messages, cannot show that a rank never sent or received.
    if not all((j := journals.get(r)) is not None and j.has_all_messages for r in (sender, to, source, receiver)):
        return frozenset()
    if (sender == source) == (to == receiver):
        return frozenset()
    odd, waits = (sender, receiver) if sender == source else (receiver, sender)
    if may_come_later(case, case.activities[odd], waits):
        return frozenset()  # who waits for it has its turn later
    return frozenset({odd}) & case.graph.stuck


_Way = tuple[int, int]
"""(the rank that sends, the rank that receives)."""


def _ways(journals: dict[int, Journal | None]) -> tuple[set[_Way], set[_Way]] | None:
    """(the ways on which messages were sent, those on which messages were expected); None if some peer is unknown.

    Example: rank 0 sent to 1, rank 2 expects a message from 0 → ({(0, 1)}, {(0, 2)}).
    """
    sends: set[_Way] = set()
    recvs: set[_Way] = set()
    for rank, journal in journals.items():
        for message in journal.point_to_points if journal is not None else ():
            if message.peer < 0:
                return None
            if message_way(message.op) == "send":
                sends.add((rank, message.peer))
            elif message_way(message.op) == "recv":
                recvs.add((message.peer, rank))
    return sends, recvs


class LeftOut(NamedTuple):
    """``rank`` once left out what it had always passed to or from ``peer`` there."""

    rank: int
    peer: int
    stack: Stack
    known: bool
    """Whether none of its messages is forgotten."""


def left_out(case: Case) -> LeftOut | None:
    """The message that a stuck rank waits for and that its stuck partner left out once; None if several did."""
    waiters: defaultdict[int, list[Activity]] = defaultdict(list)
    for rank in sorted(case.graph.stuck):
        activity = case.activities[rank]
        if activity.kind in _COUNTERPART and activity.peer in case.graph.stuck and activity.peer is not None:
            waiters[activity.peer].append(activity)
    journals = {rank: case.ranks[rank].journal for rank in sorted(waiters)}
    found = [
        each
        for rank, journal in journals.items()
        if journal is not None
        for each in _left_out_by(case, rank, journal, waiters[rank])
    ]
    return found[0] if len({each.rank for each in found}) == 1 else None


def skipped_by(case: Case, found: LeftOut) -> Seen | None:
    """The one condition on the way to the message that is recorded to have come out otherwise once on the rank; None
    where there is none, or several, or the peer came to its own message as it never had."""
    if case.execution.anew(found.peer, case.activities[found.peer].stack, came=True):
        return None
    by = case.execution.anew(found.rank, found.stack, came=False)
    return by[0] if len(by) == 1 else None


def _left_out_by(case: Case, rank: int, journal: Journal, waiters: Iterable[Activity]) -> list[LeftOut]:
    """The messages that stuck ranks wait for and that ``rank`` passed one time less than usual at their line.

    Example: rank 0 sends to 1 at one line twice a round, in the last round once, and 1 waits → that send.
    """
    waiting = {(_COUNTERPART[a.kind], a.rank) for a in waiters}
    messages = one_for_each_call(journal) if waiting else []
    stacks = [journal.stack(m.stack) for m in messages]
    sites = [(m.op, m.peer, site_of(stack)) for m, stack in zip(messages, stacks, strict=True)]
    fewer = [
        site
        for site in dict.fromkeys(sites)
        if site[:2] in waiting and any(count == usual - 1 for _, _, count, usual in passages(sites, site))
    ]
    # Where this rank waits for a third one, its message to that one is the one that is missing.
    elsewhere = case.activities[rank].kind in _COUNTERPART
    return [
        LeftOut(rank, site[1], stacks[sites.index(site)], journal.has_all_messages)
        for site in fewer
        if not elsewhere or case.graph.dissolves((site[1],))
    ]


def one_for_each_call(journal: Journal) -> list[PointToPoint]:
    """The messages, without the second one of calls that pass two each: how long the objects are, and then these.

    Example: send_object_list, recv, send_object_list → the lengths, recv, the lengths.
    """
    found: list[PointToPoint] = []
    begun: PointToPoint | None = None
    for message in journal.point_to_points:
        stack = journal.stack(message.stack)
        same = begun is not None and (begun.op, begun.peer) == (message.op, message.peer)
        if same and begun is not None and site_of(journal.stack(begun.stack)) == site_of(stack):
            begun = None
            continue
        found.append(message)
        objects = any(plain(f.function) in names("passes_objects") for f in stack if is_library(f))
        begun = message if objects else None
    return found


def named_by_nobody(case: Case) -> frozenset[int]:
    """Several ranks none of whose messages has a partner, while all messages of the ranks that they name have one; none
    where a rank that they name may have left a message out, as it issued none at the line.

    Example: ranks 0 to 2 pass messages around, ranks 3 to 5 take 0 to 2 for their neighbors as well → 3 to 5.
    """
    alone = case.messages_alone
    ranks = {each.rank for each in alone}
    peers = {each.message.peer for each in alone}
    journals = {rank: case.ranks[rank].journal for rank in ranks | peers if rank in case.ranks}
    if len(ranks) < 2 or ranks & peers or not ranks <= case.graph.stuck:
        return frozenset()
    sites: dict[int, set[tuple[str, Site]]] = {}
    for rank, journal in journals.items():
        if journal is None or not journal.has_all_messages:
            return frozenset()
        named = {message.peer for message in journal.point_to_points}
        if named & ranks or -1 in named:
            return frozenset()
        sites[rank] = {(m.op, site_of(journal.stack(m.stack))) for m in journal.point_to_points}
    if any(not sites[each.rank] <= sites[each.message.peer] for each in alone if each.message.peer in sites):
        return frozenset()
    return frozenset(ranks)
