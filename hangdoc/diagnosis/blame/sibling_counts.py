"""Which side of a message without a partner is the odd one, by other pairs of ranks that do the same at the same lines.

Example: ranks 0 and 1 each sent 60 messages at line 64, rank 2 took 60 at line 37, and rank 3 waits in its 61st there →
rank 3 awaits one too many; had rank 1 sent 59, and rank 3 waited in its 60th → rank 1 has left one out.
"""

from __future__ import annotations

from dataclasses import replace

from hangdoc.diagnosis.blame.arguments import missing_partners
from hangdoc.diagnosis.blame.message_blame import ExchangeTooMany, MissingPartner, OneTooMany, messages_sent, partner
from hangdoc.diagnosis.calls.message_pairs import paired
from hangdoc.diagnosis.condition.matching_message import issued_from, matching
from hangdoc.diagnosis.condition.way_to_message import issued_to_others
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.messages.faults import LeftOut
from hangdoc.model.kinds import MESSAGES, ActivityKind, Confidence
from hangdoc.model.operations import message_way
from hangdoc.model.process import Stack
from hangdoc.model.wording import ranks_text

_FEWEST = 3
"""Messages that went down a chain before one more is odd; chosen by hand."""
_FEWEST_SIBLINGS = 2
"""Ranks that a message was passed with before none with another is odd; chosen by hand."""


def odd_among_siblings(case: Case) -> Blame[MissingPartner | ExchangeTooMany] | Blame[OneTooMany] | None:
    """The side of the one message without a partner whose count differs from that of all its siblings, where those of
    the other side agree with it, and nothing else tells the sides apart."""
    found = partner(case) if case.has_history and not case.streams else None
    if found is None or not isinstance(found.found, MissingPartner) or found.confidence != Confidence.POSSIBLE:
        return None
    pairs = [pair for pair in missing_partners(case) if (pair[1],) == found.culprits]
    if len(pairs) != 1:
        return None
    ((waiter, peer),) = pairs
    chain = _odd_in_chain(case, waiter, peer)
    if chain is not None:
        return chain
    never = _with_all_but_one(case, waiter, peer)
    if never is not None:
        passed = tuple(sorted(never[1]))
        sure = f"rank {peer} has passed such messages with {ranks_text(passed)}, and none with rank {waiter}"
        explained = replace(found.found, skipped=never[0])
        return replace(found, found=explained, alternatives=(), confidence=Confidence.LIKELY, sure=sure)
    siblings = _with_one_more(case, waiter, peer)
    if siblings:
        sure = f"{ranks_text(siblings)} have each sent rank {waiter} one more than rank {peer}"
        return replace(found, alternatives=(), confidence=Confidence.LIKELY, sure=sure)
    activity = case.activities[waiter]
    taken = matching(case, activity, peer)
    if taken is None or taken.rank != peer:
        return None
    mine, theirs = _counts(case, issued_from(case, activity), activity.kind), _counts(case, taken.stack, taken.op)
    here, there = mine.pop(waiter, 0), theirs.pop(peer, 0)
    waiting = [rank for rank in (*mine, *theirs) if case.activities[rank].kind in MESSAGES]
    if waiting or len(set(mine.values())) != 1 or len(set(theirs.values())) != 1:
        return None
    usual, given = next(iter(mine.values())), next(iter(theirs.values()))
    if there == given and here > usual and case.graph.dissolves((waiter,)):
        sure = f"{ranks_text(tuple(sorted(mine)))} passed {usual} such messages at that line, rank {waiter} {here}"
        extra = OneTooMany(waiter, peer, usual, tuple(sorted(mine)))
        return Blame(extra, (waiter,), proved=True, confidence=Confidence.LIKELY, sure=sure)
    if here == usual and there < given:
        sure = f"{ranks_text(tuple(sorted(theirs)))} passed {given} such messages at that line, rank {peer} {there}"
        return replace(found, alternatives=(), confidence=Confidence.LIKELY, sure=sure)
    return None


def _with_one_more(case: Case, waiter: int, peer: int) -> tuple[int, ...]:
    """All other ranks that send to the one that waits for a message, if each has sent it one more than its peer.

    Example: rank 0 takes an answer of each of ranks 1 to 3 in every round, and has 7 of ranks 1 and 3 and 6 of rank 2 →
    (1, 3): rank 2 has left one out.
    """
    if case.activities[waiter].kind != ActivityKind.RECV:
        return ()
    given = messages_sent(case, peer, waiter)
    counts = {rank: messages_sent(case, rank, waiter) for rank in case.activities if rank not in (waiter, peer)}
    senders = tuple(sorted(rank for rank, count in counts.items() if count))
    alike = all(counts[rank] == given + 1 for rank in senders)
    return senders if alike and given and len(senders) >= _FEWEST_SIBLINGS else ()


def _odd_in_chain(case: Case, waiter: int, peer: int) -> Blame[OneTooMany] | None:
    """The rank that waits for one more message than it has ever handed on, where whoever takes from it has as many as
    its peer has sent, and is through: had the peer left one out, these would wait for it as well.

    Example: stage 0 sent 47 activations to stage 1, which sent 47 to stage 2; both are in the barrier after the loop,
    and stage 1 waits for a 48th → stage 1.
    """
    if case.activities[waiter].kind != ActivityKind.RECV or not case.graph.dissolves((waiter,)):
        return None
    if issued_to_others(case, case.activities[waiter], peer):
        return None  # a mark at the end, which others got: nobody hands that on
    given = messages_sent(case, peer, waiter)
    further = {rank: messages_sent(case, waiter, rank) for rank in case.activities if rank not in (waiter, peer)}
    taking = tuple(sorted(rank for rank, count in further.items() if count))
    journals = [case.ranks[rank].journal for rank in (waiter, peer)]
    if given < _FEWEST or not taking or not all(j is not None and j.has_all_messages for j in journals):
        return None
    if any(further[rank] != given or case.activities[rank].kind in MESSAGES for rank in taking):
        return None
    sure = f"{ranks_text(taking)} {'is' if len(taking) == 1 else 'are'} through with as many as rank {peer} has sent"
    found = OneTooMany(waiter, peer, given, onward=taking)
    return Blame(found, (waiter,), proved=True, confidence=Confidence.LIKELY, sure=sure)


def _with_all_but_one(case: Case, waiter: int, peer: int) -> tuple[LeftOut, set[int]] | None:
    """The message that the peer has passed with each of the other ranks that come to the line at which the rank waits,
    and never with this one; (it, those ranks).

    Example: ranks 1 to 3 send their state from line 51, rank 0 has taken what ranks 1 and 2 sent, and nothing of rank
    3, which waits there for it → the recv of rank 0.
    """
    activity = case.activities[waiter]
    way = "recv" if activity.kind == ActivityKind.SEND else "send"
    here = _line(issued_from(case, activity))
    journals = {rank: each.journal for rank, each in case.ranks.items() if each.journal is not None}
    kept = [journals[rank] for rank in (waiter, peer) if rank in journals and journals[rank].has_all_messages]
    if here is None or len(kept) < len((waiter, peer)):
        return None
    if any(m.peer == waiter and message_way(m.op) == way for m in journals[peer].point_to_points):
        return None
    there = {r for r, j in journals.items() if any(_line(j.stack(m.stack)) == here for m in j.point_to_points)}
    passed: dict[int, Stack] = {}
    for pair in paired(journals):
        mine, theirs = pair if activity.kind == ActivityKind.SEND else reversed(pair)
        if theirs.rank == peer and _line(journals[mine.rank].stack(mine.message.stack)) == here:
            passed[mine.rank] = journals[peer].stack(theirs.message.stack)
    if len(passed) < _FEWEST_SIBLINGS or set(passed) != there - {waiter}:
        return None
    return LeftOut(peer, waiter, way, list(passed.values())[-1], never=True), set(passed)


def _line(stack: Stack) -> tuple[str, int] | None:
    return next(((frame.file, frame.line) for frame in user_stack(stack)), None)


def _counts(case: Case, stack: Stack, way: str) -> dict[int, int]:
    """Rank → how many messages of that way it has issued from the stack's line, for those that have, and know all."""
    line = [(frame.file, frame.line) for frame in user_stack(stack)[:1]]
    found: dict[int, int] = {}
    for rank, snapshot in case.ranks.items():
        journal = snapshot.journal
        if journal is None or not journal.has_all_messages or rank not in case.activities:
            continue
        stacks = [journal.stack(m.stack) for m in journal.point_to_points if message_way(m.op) == way]
        count = sum([(f.file, f.line) for f in user_stack(each)[:1]] == line for each in stacks)
        found |= {rank: count} if count else {}
    return found
