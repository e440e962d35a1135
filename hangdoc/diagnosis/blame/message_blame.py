"""The ranks to blame for a message without a partner."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hangdoc.diagnosis.blame.arguments import missing_partners
from hangdoc.diagnosis.blame.left_loop import LeftLoop, left_loop
from hangdoc.diagnosis.blame.odd_partner import is_both_ways
from hangdoc.diagnosis.blame.wait_cycle import would_free_all
from hangdoc.diagnosis.bounds import OFTEN
from hangdoc.diagnosis.calls.message_pairs import common_rank, left_without
from hangdoc.diagnosis.condition.parted_alone import deciding_about, parted_alone
from hangdoc.diagnosis.condition.rounds_ahead import rounds_of
from hangdoc.diagnosis.condition.skipped_alone import skipped_alone
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Explanation
from hangdoc.diagnosis.frames.landmarks import below_user, plain
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.messages.faults import (
    LeftOut,
    NamedByNobody,
    TagMismatch,
    WrongPeer,
    crossed_tags,
    left_out,
    named_by_nobody,
    skipped_by,
    wrong_peer,
    wrong_peer_by_stacks,
)
from hangdoc.diagnosis.messages.late import is_on_its_way
from hangdoc.diagnosis.source.guards import guards, loops_around
from hangdoc.diagnosis.source.message_calls import message_calls
from hangdoc.diagnosis.source.syntax import enclosing_function, holds, names_in
from hangdoc.diagnosis.state.awaited_peers import is_with_several
from hangdoc.diagnosis.state.pipeline_schedule import has_sends_to_come, is_in_schedule, is_inner_stage
from hangdoc.model.diagnosis import Activity
from hangdoc.model.kinds import MESSAGES, ActivityKind, Confidence
from hangdoc.model.message import Condition
from hangdoc.model.operations import message_way
from hangdoc.model.wording import ranks_text


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
            left = left_loop(case, peer)
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
            if went_past := _alone_past(case, peer, waiter):
                sure = f"rank {peer} alone has run what skips a message"
                found = replace(found, alone=went_past)
                return Blame(found, (peer,), proved=True, confidence=Confidence.LIKELY, sure=sure)
            if len(stepping := _still_in_steps(case, waiter, peer)) > len(case.activities) - len(stepping):
                sure = f"{ranks_text(stepping)} still in a step of the pipeline that rank {peer} has left"
                return Blame(found, (peer,), proved=True, confidence=Confidence.LIKELY, sure=sure)
            if not case.has_history and alone_in_exchange(case, (waiter,)):
                return too_many((waiter,), (peer,))
            return Blame(found, (peer,), others, proved=True, sure=sure)
    return None


@dataclass(frozen=True, slots=True)
class ExchangeTooMany(Explanation):
    """The culprit waits in an exchange of messages that no other rank takes part in; ``peers``: those that it names, ()
    where that could not be seen."""

    peers: tuple[int, ...]


def _alone_past(case: Case, peer: int, waiter: int) -> tuple[Condition, ...]:
    """Under what the peer alone has been that skips a message; () where the waiter alone has skipped one as well."""
    return () if skipped_alone(case, waiter) else tuple(skipped_alone(case, peer))


def _still_in_steps(case: Case, waiter: int, peer: int) -> tuple[int, ...]:
    """The ranks in a step of a pipeline's schedule, with the waiter, where the peer is in none: each step passes as
    many messages on every stage, so that a stage out of it has made fewer steps than these."""
    inside = {rank for rank, activity in case.activities.items() if is_in_schedule(activity.stack)}
    return tuple(sorted(inside)) if waiter in inside and peer not in inside else ()


def odd_message(
    case: Case,
) -> Blame[TagMismatch | WrongPeer | NamedByNobody | MissingPartner | ExchangeTooMany] | None:
    """A message with two different tags, to or from the wrong rank or ranks, left out once, or without a partner.

    They are tried in this order, the more specific explanation first. Example: rank 0 sent tag 1 to rank 1, which waits
    for tag 2 from it → TagMismatch of ranks 0 and 1.
    """
    found = crossed_tags(case)
    elsewhere = wrong_peer(case) or wrong_peer_by_stacks(case) if found is None else None
    if elsewhere is not None:
        pair = sorted((elsewhere.took, elsewhere.waits))
        sure = f"every message without a partner is between it and rank {pair[0]} or {pair[1]}"
        if not case.has_history:
            sure = f"rank {elsewhere.rank} never names rank {elsewhere.waits}, which names it"
        return Blame(elsewhere, (elsewhere.rank,), proved=True, confidence=Confidence.LIKELY, sure=sure)
    strangers = named_by_nobody(case) if found is None else None
    if strangers is not None:
        sure = f"no message of {ranks_text(strangers.ranks)} has a partner, and all others have one"
        return Blame(strangers, strangers.ranks, proved=True, confidence=Confidence.LIKELY, sure=sure)
    skipped = left_out(case) if found is None else None
    if skipped is not None:
        sure = f"rank {skipped.rank} once skipped a {skipped.op} that it had always made there"
        if skipped.fewer > 1:
            sure = f"rank {skipped.rank} had made equally many {skipped.op}s before each such call"
        missing = MissingPartner(skipped, left_loop(case, skipped.rank))
        once = skipped_by(case, skipped)
        sure += f"; `{once.guard.condition}` is recorded to have come out there as never before" if once else ""
        confidence = Confidence.CERTAIN if once is not None else Confidence.LIKELY
        return Blame(missing, (skipped.rank,), proved=True, confidence=confidence, sure=sure)
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
    about = deciding_about(case, (case.activities[rank] for side in sides for rank in side))
    parting = {side: by for side in sides if (by := tuple(parted_alone(case, side[0], about)))}
    if len(parting) == 1:
        ((side, by),) = parting.items()
        sure = f"{ranks_text(side)} alone went another way there, by what the ranks have run"
        return Blame(replace(found, parted=by), side, proved=True, confidence=Confidence.LIKELY, sure=sure)
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


def alone_in_exchange(case: Case, roots: tuple[int, ...]) -> bool:
    """True if one rank alone waits in an exchange with several peers, or in a pipeline's schedule between its ends, and
    all others are in collectives: one that left its part out would keep several waiting.

    Examples: rank 3 waits for the messages that `isend(edge, left)` and `isend(edge, right)` have issued, and ranks 0,
    1, 2 and 4 in all_reduce → True; stage 1 of 3 waits in schedule.step() for stage 0, and stage 2 for nothing → True.
    """
    others = [a.kind for rank, a in case.activities.items() if rank not in roots]
    if any(is_from_anyone(case.activities[rank]) for rank in roots):
        return False  # it takes from them what comes
    if len(roots) == 1 and _one_may_be_left_out(case, case.activities[roots[0]]):
        return False
    if len(roots) != 1 or set(others) != {ActivityKind.IN_COLLECTIVE}:
        return False
    stack = case.activities[roots[0]].stack
    if is_in_schedule(stack):
        # A send waits for the one stage that takes it: that may have left its part out, and nobody else shows it.
        return has_sends_to_come(stack) and is_inner_stage(roots[0], len(case.activities))
    return len(others) >= OFTEN and is_with_several(case.activities[roots[0]], case.sources, case.activities)


def _one_may_be_left_out(case: Case, waiter: Activity) -> bool:
    """True if the rank waits in a call of its own for one peer, and the function sends to its peers one after the other
    in a loop that can pass one of them by: then a single message may be missing.

    Example: `for owner, rows in enumerate(parts): ⏎ if not len(rows): ⏎ continue ⏎ dist.isend(rows, owner)`, and the
    rank waits in `dist.recv(x, src)` further on.
    """
    where = waiter.where
    tree = case.sources.function(where.file, where.line) if where is not None else None
    if where is None or tree is None or waiter.peer is None:
        return False
    here = enclosing_function(tree, where.line)
    issued = list(message_calls(here))
    if not any(holds(call, where.line) for _, call, _ in issued):
        return False  # it waits for what it issued before, with several
    for kind, call, given in issued:
        around = guards(here, call.lineno)
        loop = next(reversed(loops_around(here, call.lineno)), None)
        if message_way(kind) != waiter.kind and loop is not None and set(names_in(given)) & set(loop.counters):
            return any(g.line > loop.line and g.kind in ("if", "return") for g in around)
    return False


def too_many(waiting: tuple[int, ...], peers: tuple[int, ...]) -> Blame[ExchangeTooMany]:
    """The blame of the rank that alone is in an exchange with several."""
    sure = "all others have gone past the exchange that it waits in, and each exchange is with several ranks"
    return Blame(ExchangeTooMany(peers), waiting, proved=True, confidence=Confidence.LIKELY, sure=sure)
