"""The ranks to blame for a message without a partner."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from hangdoc.diagnosis.blame.arguments import missing_partners
from hangdoc.diagnosis.blame.left_loop import LeftLoop, left_beside_others, left_loop
from hangdoc.diagnosis.blame.odd_partner import is_both_ways
from hangdoc.diagnosis.blame.wait_cycle import would_free_all
from hangdoc.diagnosis.calls.message_pairs import common_rank, left_without
from hangdoc.diagnosis.condition.elsewhere.left_behind import left_behind
from hangdoc.diagnosis.condition.last_round import rounds_of
from hangdoc.diagnosis.condition.skipped_alone import skipped_alone
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Explanation
from hangdoc.diagnosis.frames.landmarks import below_user, plain
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.messages.faults import (
    LeftOut,
    NamedByNobody,
    TagMismatch,
    WrongPeer,
    crossed_tags,
    left_out,
    named_by_nobody,
    wrong_peer,
)
from hangdoc.diagnosis.messages.late import is_on_its_way, left_out_of_a_round, more_than_ever
from hangdoc.diagnosis.messages.other_group import OtherGroup, in_other_group
from hangdoc.diagnosis.state.awaited_peers import is_with_several
from hangdoc.diagnosis.state.pipeline_schedule import has_sends_to_come, is_in_schedule, is_inner_stage
from hangdoc.model.diagnosis import Activity
from hangdoc.model.kinds import MESSAGES, ActivityKind, Confidence
from hangdoc.model.message import Condition
from hangdoc.model.operations import message_way
from hangdoc.model.process import Stack
from hangdoc.model.wording import ranks_text

_MOST_COMPARED = 64
"""Ranks that are compared one by one with all others; chosen by hand: the cost is their square."""
_MOST_NAMED = 8
"""Alternatives in a report; chosen by hand: a longer list helps nobody."""


@dataclass(frozen=True, slots=True)
class MissingPartner(Explanation):
    """A message has no partner: the culprit did not issue it, or the rank that waits made an extra call."""

    skipped: LeftOut | None = None
    """The message that the culprit left out once."""
    left: LeftLoop | None = None
    """The loop in which the culprit passed its messages, and which it has left."""
    ahead: bool = False
    """The culprit has gone on to a later round than the one that waits for it."""
    alone: tuple[Condition, ...] = ()
    """Under what the culprit alone has been that skips a message."""


def partner(case: Case) -> Blame[MissingPartner | ExchangeTooMany] | None:
    """The peer of a message without a partner, if this one message would let all ranks go on.

    Example: rank 0 waits in recv from 1, rank 1 in barrier, and all others in that barrier → rank 1.
    """
    alone = would_free_all(case)
    for waiter, peer in missing_partners(case):
        if peer in alone and not is_on_its_way(case, waiter, peer):
            sure = "either the message was not sent, or one too many is expected"
            others = tuple((rank,) for rank in alone if rank != peer)
            left = left_loop(case, peer) or left_beside_others(case, waiter, peer)
            found = MissingPartner(left=left)
            if left is not None and len(set(left.still) - {waiter}) > len(left.gone):
                sure = f"{ranks_text(left.still)} still in the loop that rank {peer} has left"
                return Blame(found, (peer,), proved=True, confidence=Confidence.LIKELY, sure=sure)
            if left is not None and left.later and len(left.still) > len(left.gone):
                sure = f"{ranks_text(left.still)} in a later round of the loop that rank {peer} has left"
                return Blame(found, (peer,), proved=True, confidence=Confidence.LIKELY, sure=sure)
            waiting = tuple(r for r, a in case.activities.items() if a.kind in MESSAGES and a.peer == peer)
            if not case.has_history and not others and len(waiting) > 1:
                sure = f"the messages that {ranks_text(waiting)} wait in may all be with rank {peer}, and with no other"
                return Blame(found, (peer,), proved=True, confidence=Confidence.LIKELY, sure=sure)
            if _turned_back(case, peer, waiter):
                sure = f"what rank {peer} alone left behind shows that it returned on the way to the message"
                return Blame(found, (peer,), proved=True, confidence=Confidence.LIKELY, sure=sure)
            if went_past := _alone_past(case, peer, waiter):
                sure = f"rank {peer} alone has run what skips a message"
                found = replace(found, alone=went_past)
                return Blame(found, (peer,), proved=True, confidence=Confidence.LIKELY, sure=sure)
            if not case.has_history and _alone_in_exchange(case, (waiter,)):
                return _too_many((waiter,), (peer,))
            return Blame(found, (peer,), others, proved=True, sure=sure)
    return None if case.has_history else _partners(case)


@dataclass(frozen=True, slots=True)
class ExchangeTooMany(Explanation):
    """The culprit waits in an exchange of messages that no other rank takes part in; ``peers``: those that it names, ()
    where that could not be seen."""

    peers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class OneTooMany(Explanation):
    """A rank waits for more messages with its peer than in any round before, than its ``siblings`` at that line or than
    it has handed ``onward``, and the peer passed as many as ever."""

    rank: int
    peer: int
    usual: int
    siblings: tuple[int, ...] = ()
    onward: tuple[int, ...] = ()
    """The ranks that take from it what it makes of these messages, and are through."""


def one_too_many(case: Case) -> Blame[OneTooMany] | None:
    """The rank that waits for a message more than ever before its call, where its peer is already in that call.

    Example: rank 0 always took 3 messages of rank 1 before the broadcast, and waits for a fourth one, and rank 1, which
    has sent 3 as ever, is in the broadcast → rank 0.
    """
    for waiter, peer in missing_partners(case):
        usual = more_than_ever(case, waiter) if is_on_its_way(case, waiter, peer) else 0
        if usual and case.graph.dissolves((waiter,)):
            sure = f"rank {waiter} had always passed {usual} such messages with rank {peer} between its calls"
            found = OneTooMany(waiter, peer, usual)
            return Blame(found, (waiter,), proved=True, confidence=Confidence.LIKELY, sure=sure)
    return None


def _alone_past(case: Case, peer: int, waiter: int) -> tuple[Condition, ...]:
    """Under what the peer alone has been that skips a message; () where the waiter alone has skipped one as well."""
    return () if skipped_alone(case, waiter) else tuple(skipped_alone(case, peer))


def _turned_back(case: Case, peer: int, waiter: int) -> bool:
    """True if the peer alone has left something behind in a suite that leaves a function, or a round, which the waiter
    is in, where histories tell nothing.

    Example: both run forward_micro(), in which `if not healthy(x): ⏎ self.dropped += 1 ⏎ return` comes before the send,
    and dropped is 1 on the peer and 0 on all others.
    """
    others = tuple(sorted(case.seen - {peer}))
    left = left_behind(case, ((peer,), others)) if not case.has_history and others else []
    within = {(f.file, plain(f.function).rpartition(".")[2]) for f in user_stack(case.activities[waiter].stack)}
    return any(each.side == 0 and each.jumps and (each.file, each.function) in within for each in left)


def _partners(case: Case) -> Blame[MissingPartner] | None:
    """The peers of several messages, each without its partner, if these messages would let all ranks go on.

    Example: of two pipelines, ranks 2 and 5 wait in recv from 1 and 4, and all others in a barrier → 1 and 4.
    """
    robbed = [pair for pair in missing_partners(case) if not is_on_its_way(case, *pair)]
    peers = tuple(sorted({peer for _, peer in robbed}))
    if len(peers) < 2 or not case.graph.dissolves(peers):
        return None
    sure = "either the messages were not sent, or one too many is expected"
    waiting = tuple(rank for rank, _ in robbed)
    return Blame(MissingPartner(), peers, (waiting,), proved=True, sure=sure)


def message_in_other_group(case: Case) -> Blame[OtherGroup] | None:
    """A pair of ranks that name each other in two groups. Either may be in the wrong one: both are named."""
    found = in_other_group(case)
    if found is None:
        return None
    sure = "every other message has its partner, in its own group"
    ranks = tuple(sorted((found.sender, found.receiver)))
    return Blame(found, ranks, proved=True, confidence=Confidence.LIKELY, sure=sure)


def odd_message(
    case: Case,
) -> Blame[TagMismatch | WrongPeer | NamedByNobody | MissingPartner | ExchangeTooMany] | None:
    """A message with two different tags, to or from the wrong rank or ranks, left out once, or without a partner.

    They are tried in this order, the more specific explanation first. Example: rank 0 sent tag 1 to rank 1, which waits
    for tag 2 from it → TagMismatch of ranks 0 and 1.
    """
    found = crossed_tags(case)
    elsewhere = wrong_peer(case) if found is None else None
    if elsewhere is not None:
        pair = sorted((elsewhere.took, elsewhere.waits))
        sure = f"every message without a partner is between it and rank {pair[0]} or {pair[1]}"
        return Blame(elsewhere, (elsewhere.rank,), proved=True, confidence=Confidence.LIKELY, sure=sure)
    strangers = named_by_nobody(case) if found is None else None
    if strangers is not None:
        sure = f"no message of {ranks_text(strangers.ranks)} has a partner, and all others have one"
        return Blame(strangers, strangers.ranks, proved=True, confidence=Confidence.LIKELY, sure=sure)
    skipped = left_out(case) or left_out_of_a_round(case) if found is None else None
    if skipped is not None:
        sure = f"rank {skipped.rank} once skipped a {skipped.op} that it had always made there"
        if skipped.fewer > 1:
            sure = f"rank {skipped.rank} had made equally many {skipped.op}s before each such call"
        missing = MissingPartner(skipped, left_loop(case, skipped.rank))
        return Blame(missing, (skipped.rank,), proved=True, confidence=Confidence.LIKELY, sure=sure)
    if found is None:
        return _without_partners(case)
    sides = [(found.sender,), (found.receiver,)]
    if found.strayed == found.receiver:
        sides.reverse()
    if found.strayed is not None:
        sure = f"rank {found.strayed} is the one whose tags differ from the others' or from its own before"
        return Blame(found, sides[0], proved=True, confidence=Confidence.LIKELY, sure=sure)
    rounds = rounds_of(case, found.receiver, found.sender) if not case.has_history else None
    if rounds is not None and rounds[1] > rounds[0]:
        sure = f"rank {found.sender} is a round further than rank {found.receiver}, which waits for its message"
        return Blame(found, sides[0], proved=True, confidence=Confidence.LIKELY, sure=sure)
    skipping = {side: by for side in sides if (by := tuple(skipped_alone(case, side[0])))}
    if len(skipping) == 1:
        ((side, by),) = skipping.items()
        sure = f"{ranks_text(side)} alone has run what skips a message"
        return Blame(replace(found, alone=by), side, proved=True, confidence=Confidence.LIKELY, sure=sure)
    return Blame(found, sides[0], (sides[1],), proved=True, sure="either tag may be the wrong one")


def _without_partners(case: Case) -> Blame[MissingPartner | ExchangeTooMany] | None:
    """The one rank that is an end of every one of several messages without a partner."""
    without = left_without(case.messages_alone)
    rank = common_rank(without)
    if rank is None:
        return None
    sure = "every message without a partner is to or from it"
    peers = tuple(sorted({other for pair in without for other in pair} - {rank}))
    found: MissingPartner | ExchangeTooMany = MissingPartner(left=left_loop(case, rank))
    if case.activities[rank].kind in MESSAGES and all(each.rank == rank for each in without.values()):
        found = ExchangeTooMany(peers)
    return Blame(found, (rank,), proved=True, confidence=Confidence.LIKELY, sure=sure)


_FEWEST_EACH = 3
"""Messages of each of the other ranks before one less is odd; chosen by hand."""


def fewer_to_anyone(case: Case) -> Blame[MissingPartner] | None:
    """The one rank that has sent one message fewer to the rank that takes them from anyone, where all others, several,
    have sent it equally many.

    Example: rank 0 waits in a recv from any rank, ranks 1 and 2 have sent it 7 messages, rank 3 has sent it 6, and all
    of them wait for rank 0 → rank 3.
    """
    waiting = [rank for rank, activity in case.activities.items() if is_from_anyone(activity)]
    senders = [rank for rank in case.activities if rank not in waiting]
    journals = [case.ranks[rank].journal for rank in senders]
    if len(waiting) != 1 or len(senders) <= 2 or not all(case.graph.on(rank) & set(waiting) for rank in senders):
        return None
    if not all(journal is not None and journal.has_all_messages for journal in journals):
        return None
    sent = {rank: messages_sent(case, rank, waiting[0]) for rank in senders}
    usual = max(sent.values())
    fewer = [rank for rank, count in sent.items() if count != usual]
    if usual < _FEWEST_EACH or len(fewer) != 1 or sent[fewer[0]] != usual - 1:
        return None
    sure = f"all others have sent rank {waiting[0]} {usual} messages, and rank {fewer[0]} has sent it {usual - 1}"
    found = MissingPartner(left=left_loop(case, fewer[0]))
    # Work that is dealt out need not be dealt evenly: then the one that takes has asked once too often.
    asks = (tuple(waiting),)
    return Blame(found, (fewer[0],), asks, proved=True, confidence=Confidence.POSSIBLE, sure=sure)


def left_out_to_anyone(case: Case) -> Blame[MissingPartner] | None:
    """The one rank that has never sent from a line, from which all others, several, have sent to the rank that takes
    messages from anyone; else the one that alone has run, or written, what skips a message.

    Example: rank 0 waits in a recv from any rank, and ranks 1 and 3 have sent their end marks to it, at line 70 → rank
    2.
    """
    waiting = [rank for rank, activity in case.activities.items() if is_from_anyone(activity)]
    senders = [rank for rank in case.activities if rank not in waiting and case.graph.on(rank) & set(waiting)]
    if len(waiting) != 1 or len(senders) <= 2:
        return None
    issued = {rank: _lines_to(case, rank, waiting[0]) for rank in senders}
    lacking = _left_out_by_one(issued) if all(issued.values()) else {}
    if len(lacking) == 1:
        ((rank, stacks),) = lacking.items()
        sure = f"all others have sent rank {waiting[0]} messages from a line from which rank {rank} has sent none"
        found = MissingPartner(LeftOut(rank, waiting[0], "send", stacks[0]), alone=tuple(skipped_alone(case, rank)))
        return Blame(found, (rank,), proved=True, confidence=Confidence.LIKELY, sure=sure)
    asked = senders if len(senders) <= _MOST_COMPARED else ()  # each is compared with all others
    skipping = {rank: by for rank in asked if (by := tuple(skipped_alone(case, rank)))}
    if len(skipping) != 1:
        return None
    ((rank, by),) = skipping.items()
    sure = f"rank {rank} alone has run what skips a message"
    return Blame(MissingPartner(alone=by), (rank,), proved=True, confidence=Confidence.LIKELY, sure=sure)


_Lines = dict[tuple[str, int], Stack]
"""(file, line) → the stack of a message that was issued there."""


def _lines_to(case: Case, rank: int, peer: int) -> _Lines:
    """The lines from which the rank has sent to that peer; none where some of its messages are forgotten."""
    journal = case.ranks[rank].journal
    if journal is None or not journal.has_all_messages:
        return {}
    stacks = [journal.stack(m.stack) for m in journal.point_to_points if message_way(m.op) == "send" and m.peer == peer]
    return {(own[0].file, own[0].line): stack for stack in stacks if (own := user_stack(stack))}


def _left_out_by_one(issued: dict[int, _Lines]) -> dict[int, list[Stack]]:
    """Rank → a stack of each line from which all other ranks have issued messages, and this one none."""
    stacks: dict[tuple[str, int], Stack] = {}
    for lines in issued.values():
        stacks |= lines
    counts = Counter(line for lines in issued.values() for line in lines)
    found: dict[int, list[Stack]] = {}
    for line in sorted(line for line, count in counts.items() if count == len(issued) - 1):
        found.setdefault(next(rank for rank, lines in issued.items() if line not in lines), []).append(stacks[line])
    return found


def is_from_anyone(activity: Activity) -> bool:
    """True for a recv from any rank: one that was given no source."""
    given = [
        local.value
        for frame in below_user(activity.stack)
        if plain(frame.function) in names("receives_message")
        for local in frame.locals
        if local.name in names("peer_local")
    ]
    named_none = bool(given) and set(given) == {"None"}
    return activity.kind == ActivityKind.RECV and ("anysource" in activity.operation or named_none)


def messages_sent(case: Case, rank: int, peer: int) -> int:
    """How many messages the rank has issued to that peer, of those that its journal has kept."""
    journal = case.ranks[rank].journal
    sends = journal.point_to_points if journal is not None else ()
    return sum(message_way(message.op) == "send" and message.peer == peer for message in sends)


def ahead_of_its_message(case: Case) -> Blame[MissingPartner] | None:
    """The one rank that has gone on to a later round of a loop, where another waits for a message of it in the round
    before; None where histories tell more.

    Example: ranks 0 to 2 wait for gradients in round 4 of `for step in range(steps):`, rank 2 for those of rank 3,
    which waits for its first input in round 5 → rank 3.
    """
    ahead: dict[int, int] = {}
    for rank, activity in case.activities.items():
        peer = activity.peer
        if activity.kind in MESSAGES and peer in case.activities and peer is not None and not _answers(case, activity):
            if is_both_ways(case, activity) and is_both_ways(case, case.activities[peer]):
                continue  # with whom a rank exchanges may be chosen anew in each round
            rounds = rounds_of(case, rank, peer)
            ahead |= {peer: rank} if rounds is not None and rounds[1] > rounds[0] else {}
    if len(ahead) != 1:
        return None
    ((peer, waiter),) = ahead.items()
    sure = f"rank {peer} is a round further than rank {waiter}, which waits for its message"
    found = MissingPartner(ahead=True)
    return Blame(found, (peer,), proved=True, confidence=Confidence.LIKELY, sure=sure)


def _answers(case: Case, waiter: Activity) -> bool:
    """True if the peer waits with a message of its own for this one: then it is there, under another tag."""
    peer = case.activities.get(waiter.peer) if waiter.peer is not None else None
    return peer is not None and peer.kind in MESSAGES and peer.kind != waiter.kind and peer.peer == waiter.rank


_FEWEST_OTHERS = 3
"""Ranks that have gone on, from which on the only one that has not is the odd one; chosen by hand."""


def _alone_in_exchange(case: Case, roots: tuple[int, ...]) -> bool:
    """True if one rank alone waits in an exchange with several peers, or in a pipeline's schedule between its ends, and
    all others are in collectives: one that left its part out would keep several waiting.

    Examples: rank 3 waits for the messages that `isend(edge, left)` and `isend(edge, right)` have issued, and ranks 0,
    1, 2 and 4 in all_reduce → True; stage 1 of 3 waits in schedule.step() for stage 0, and stage 2 for nothing → True.
    """
    others = [a.kind for rank, a in case.activities.items() if rank not in roots]
    if any(is_from_anyone(case.activities[rank]) for rank in roots):
        return False  # it takes from them what comes
    if len(roots) != 1 or set(others) != {ActivityKind.IN_COLLECTIVE}:
        return False
    stack = case.activities[roots[0]].stack
    if is_in_schedule(stack):
        # A send waits for the one stage that takes it: that may have left its part out, and nobody else shows it.
        return has_sends_to_come(stack) and is_inner_stage(roots[0], len(case.activities))
    return len(others) >= _FEWEST_OTHERS and is_with_several(case.activities[roots[0]], case.sources, case.activities)


def _too_many(waiting: tuple[int, ...], peers: tuple[int, ...]) -> Blame[ExchangeTooMany]:
    sure = "all others have gone past the exchange that it waits in, and each exchange is with several ranks"
    return Blame(ExchangeTooMany(peers), waiting, proved=True, confidence=Confidence.LIKELY, sure=sure)


def unseen_partner(case: Case) -> Blame[MissingPartner | ExchangeTooMany] | None:
    """The ranks in a send or recv whose peer no source shows, if all others wait for them.

    Any rank that waits may be the partner. Example: rank 0 is in a recv from any rank, 1 and 2 wait for 0 in barrier →
    rank 0, alternatives (1,) and (2,).
    """
    sender = fewer_to_anyone(case) or left_out_to_anyone(case)
    if sender is not None:
        return sender
    roots = tuple(sorted(case.graph.roots))
    if not roots or any(case.activities[r].kind not in MESSAGES for r in roots):
        return None
    waiting = sorted({w.waiter for w in case.graph.waits})
    proved = {*waiting, *roots} == set(case.activities)
    sure = "which rank the message is for, or from, could not be seen"
    if proved and _alone_in_exchange(case, roots):
        return _too_many(roots, ())
    return Blame(MissingPartner(), roots, tuple((r,) for r in waiting[:_MOST_NAMED]), proved=proved, sure=sure)
