"""Messages without a partner: sent under one tag and expected under another, to the wrong rank, or left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from hangdoc.diagnosis.condition.divergence_point import passages
from hangdoc.diagnosis.condition.later_in_turn import may_come_later
from hangdoc.diagnosis.condition.ways_past import stay_as_made
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.execution.parting import Seen
from hangdoc.diagnosis.explanation import Explanation
from hangdoc.diagnosis.frames.landmarks import number_below_user, plain
from hangdoc.diagnosis.frames.library import is_library
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.frames.stacks import Site, site_of, user_stack
from hangdoc.diagnosis.source.message_calls import peer_of
from hangdoc.diagnosis.source.syntax import dotted, holds, last_name
from hangdoc.model.diagnosis import Activity
from hangdoc.model.journal import Journal, PointToPoint
from hangdoc.model.kinds import ActivityKind
from hangdoc.model.message import Condition
from hangdoc.model.operations import message_way
from hangdoc.model.process import Frame, Stack

_COUNTERPART = {ActivityKind.SEND: "recv", ActivityKind.RECV: "send"}


@dataclass(frozen=True, slots=True)
class TagMismatch(Explanation):
    """``receiver`` waits for tag ``wanted`` from ``sender``, whose message to it has tag ``sent``."""

    receiver: int
    sender: int
    wanted: int
    sent: int
    frame: Frame | None
    """The line that sent the message."""
    strayed: int | None
    """The rank of the two that used another tag at this line before; None if both did, or neither."""
    alone: tuple[Condition, ...] = ()
    """Under what one of the two, and no other rank, has been that skips a message."""
    parted: tuple[Condition, ...] = ()
    """Where one of the two, by what it ran, went another way than all other ranks."""


def crossed_tags(case: Case) -> TagMismatch | None:
    """A stuck rank waits for a message that its peer sent under another tag; None where there is none.

    If one rank is in each of several such pairs, it is the one that strayed. Example: 0 waits for tag 7 from 1, 2 for
    tag 7 from 1, and rank 1 sent tag 8 to both → rank 1.
    """
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
        found = _from_stacks(activity, sender)
        if found is not None:
            yield found


def _from_stacks(receiver: Activity, sender: Activity) -> TagMismatch | None:
    """The mismatch that the locals of torch's frames show, where sender and receiver wait for each other."""
    if sender.kind != ActivityKind.SEND or sender.peer != receiver.rank:
        return None
    wanted, sent = (number_below_user(each.stack, *names("tag_local")) for each in (receiver, sender))
    if wanted is None or sent is None or wanted == sent:
        return None
    return TagMismatch(receiver.rank, sender.rank, wanted, sent, sender.where, None)


@dataclass(frozen=True, slots=True)
class WrongPeer(Explanation):
    """``rank`` passed a message to, or expects one from, rank ``took``, while rank ``waits`` waits for it instead.

    Example: rank 0 sends to 1, which never receives from it; rank 2 waits for 0, which never sent to it → rank 0,
    'send', took 1, waits 2.
    """

    rank: int
    op: str
    took: int
    waits: int
    frame: Frame | None
    """Where it issued the message."""


def wrong_peer(case: Case) -> WrongPeer | None:
    """A message to, or expected from, another rank than the one that waits; None unless there is exactly one."""
    journals = {rank: snapshot.journal for rank, snapshot in case.ranks.items()}
    ways = _ways(journals)
    if ways is None:
        return None
    # Between two ranks that have passed messages before, the partner may only be late. Who waits behind the one that
    # took a wrong peer has no part in it.
    sent, wanted = ways[0] - ways[1], ways[1] - ways[0]
    mixed = [(a, b) for a in sent for b in wanted if (a[0] == b[0]) != (a[1] == b[1])]
    if len(mixed) != 1 or not set(mixed[0][0]) <= set(journals):
        return None
    (sender, to), (source, receiver) = mixed[0]
    if len(sent) + len(wanted) > len(mixed[0]) and not case.graph.dissolves((sender if sender == source else to,)):
        return None
    # A journal that is missing, or that dropped old messages, cannot show that a rank never sent or received.
    if not all((j := journals.get(r)) is not None and j.has_all_messages for r in (sender, to, source, receiver)):
        return None
    if sender == source:
        found = (sender, "send", to, receiver)
    elif to == receiver:
        found = (receiver, "recv", source, sender)
    else:
        return None
    if may_come_later(case, case.activities[found[0]], found[3]):
        return None  # who waits for it has its turn later
    frame = _frame_of_last(journals[found[0]], found[1], found[2])
    return WrongPeer(*found, frame) if found[0] in case.graph.stuck and frame is not None else None


def wrong_peer_by_stacks(case: Case) -> WrongPeer | None:
    """The same where no history tells: a rank waits for one that does not pass it a message, at the only line that
    takes messages of that way, which always names the same peer, and another rank names this one.

    Example: rank 4 waits in `dist.recv(x, src=self.parent)` for rank 2, which is in a reduce, and rank 1 in a send to
    rank 4 → rank 4, 'recv', took 2, waits 1.
    """
    found: list[WrongPeer] = []
    for rank in sorted(case.graph.stuck) if not case.has_history else ():
        here = case.activities[rank]
        there = case.activities.get(here.peer) if here.peer is not None else None
        if there is None or here.kind not in _COUNTERPART or there.peer == rank or not _names_one_peer(case, here):
            continue
        naming = [a for a in case.activities.values() if a.peer == rank and a.kind == _COUNTERPART[here.kind]]
        if len(naming) == 1 and naming[0].rank != there.rank:
            found.append(WrongPeer(rank, str(here.kind), there.rank, naming[0].rank, here.where))
    # Whom the others would have named wrongly waits for nobody else, once this one names another peer.
    only = [each for each in found if all(other is each or other.waits == each.rank for other in found)]
    return only[0] if len(only) == 1 else None


def _names_one_peer(case: Case, activity: Activity) -> bool:
    """True if the rank is at the program's only line that passes messages that way, and that names an attribute which
    an object got when it was made."""
    where = activity.where
    calls = [
        each
        for each in case.sources.user_calls(*names("receives_message"), *names("sends_message"))
        if message_way(last_name(each.call.func)) == activity.kind
    ]
    if where is None or len(calls) != 1 or not holds(calls[0].call, where.line) or calls[0].file != where.file:
        return False
    named = dotted(given) if (given := peer_of(calls[0].call)) is not None else ""
    return named.startswith("self.") and stay_as_made(case, {named.rpartition(".")[2]}, where.file)


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


def _frame_of_last(journal: Journal | None, op: str, peer: int) -> Frame | None:
    """The user line of the latest message of that way to or from that peer."""
    for message in reversed(journal.point_to_points) if journal is not None else ():
        if message_way(message.op) == op and message.peer == peer and journal is not None:
            return next(iter(user_stack(journal.stack(message.stack))), None)
    return None


@dataclass(frozen=True, slots=True)
class LeftOut:
    """``rank`` once left out, at ``frame``, the message that it had always passed to or from ``peer`` there, or several
    of them: ``fewer``; or it has ``never`` passed it there with this peer, but with others."""

    rank: int
    peer: int
    op: str
    stack: Stack
    fewer: int = 1
    never: bool = False

    @property
    def told(self) -> str:
        """`skipped this send once`, `made 2 sends fewer this time`, `never made this send to rank 3`."""
        if self.never:
            return f"never made this {self.op} {'to' if self.op == 'send' else 'from'} rank {self.peer}"
        return f"skipped this {self.op} once" if self.fewer == 1 else f"made {self.fewer} {self.op}s fewer this time"

    @property
    def frame(self) -> Frame | None:
        """The line."""
        return next(iter(user_stack(self.stack)), None)


def skipped_by(case: Case, found: LeftOut) -> Seen | None:
    """The one condition that is recorded to have come out on the rank as never before, so that it left the message out;
    None where there is none, or the peer came to its own message as it never had."""
    if found.never or found.fewer > 1 or case.execution.anew(found.peer, case.activities[found.peer].stack, came=True):
        return None
    by = case.execution.anew(found.rank, found.stack, came=False)
    return by[0] if len(by) == 1 else None


def left_out(case: Case) -> LeftOut | None:
    """The message that a stuck rank waits for and that its stuck partner left out once; None if several did."""
    journals = {rank: case.ranks[rank].journal for rank in sorted(case.graph.stuck)}
    found = [
        left for rank, journal in journals.items() if journal is not None for left in _left_out_by(case, rank, journal)
    ]
    return found[0] if len({left.rank for left in found}) == 1 else None


def _left_out_by(case: Case, rank: int, journal: Journal) -> list[LeftOut]:
    """The messages that stuck ranks wait for and that ``rank`` passed one time less than usual at their line.

    Example: rank 0 sends to 1 at one line twice a round, in the last round once, and 1 waits → that send.
    """
    messages = _one_for_each_call(journal)
    stacks = [journal.stack(m.stack) for m in messages]
    sites = [(m.op, m.peer, site_of(stack)) for m, stack in zip(messages, stacks, strict=True)]
    waited_for = {
        (_COUNTERPART[a.kind], a.rank)
        for a in case.activities.values()
        if a.kind in _COUNTERPART
        and a.peer == rank
        and a.rank in case.graph.stuck
        # Where this rank waits for a third one, its message to that one is the one that is missing.
        and (case.activities[rank].kind not in _COUNTERPART or case.graph.dissolves((a.rank,)))
    }
    return [
        LeftOut(rank, site[1], site[0], stacks[sites.index(site)])
        for site in dict.fromkeys(sites)
        if site[:2] in waited_for and any(count == usual - 1 for _, _, count, usual in passages(sites, site))
    ]


def _one_for_each_call(journal: Journal) -> list[PointToPoint]:
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


@dataclass(frozen=True, slots=True)
class NamedByNobody(Explanation):
    """``ranks`` pass messages to or from ``peers``, which name other ranks at the same lines; ``frame``: one of these.

    Example: ranks 0 to 2 pass messages around, ranks 3 to 5 take 0 to 2 for their neighbors as well → 3 to 5.
    """

    ranks: tuple[int, ...]
    peers: tuple[int, ...]
    frame: Frame | None


def named_by_nobody(case: Case) -> NamedByNobody | None:
    """Several ranks none of whose messages has a partner, while all messages of the ranks that they name have one; None
    where a rank that they name may have left a message out, as it issued none at the line."""
    alone = case.messages_alone
    ranks = {each.rank for each in alone}
    peers = {each.message.peer for each in alone}
    journals = {rank: case.ranks[rank].journal for rank in ranks | peers if rank in case.ranks}
    if len(ranks) < 2 or ranks & peers or not ranks <= case.graph.stuck:
        return None
    sites: dict[int, set[tuple[str, Site]]] = {}
    for rank, journal in journals.items():
        if journal is None or not journal.has_all_messages:
            return None
        named = {message.peer for message in journal.point_to_points}
        if named & ranks or -1 in named:
            return None
        sites[rank] = {(m.op, site_of(journal.stack(m.stack))) for m in journal.point_to_points}
    if any(not sites[each.rank] <= sites[each.message.peer] for each in alone if each.message.peer in sites):
        return None
    first = journals[alone[0].rank]
    frames = user_stack(first.stack(alone[0].message.stack)) if first is not None else ()
    return NamedByNobody(tuple(sorted(ranks)), tuple(sorted(peers)), next(iter(frames), None))
