"""Ranks that wait for a message of any rank, or of one that no source shows: who has left out its own?

Example: ranks 0 and 1 serve rows, ranks 2 to 4 ask them for rows and then send each an end mark at line 49. Ranks 0 and
1 wait in a recv from any rank; ranks 2 and 4 have sent three end marks to each of them, rank 3 two → rank 3.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from hangdoc.diagnosis.blame.left_loop import left_loop
from hangdoc.diagnosis.blame.message_blame import (
    ExchangeTooMany,
    MissingPartner,
    alone_in_exchange,
    is_from_anyone,
    messages_sent,
    too_many,
)
from hangdoc.diagnosis.bounds import COMPARED, FEWEST, OFTEN, TRIED
from hangdoc.diagnosis.condition.skipped_alone import skipped_alone
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.messages.faults import LeftOut
from hangdoc.model.kinds import MESSAGES, ActivityKind, Confidence
from hangdoc.model.operations import message_way
from hangdoc.model.process import Stack

_Line = tuple[str, int]
_Lines = dict[_Line, list[Stack]]
"""(file, line) → the stacks of the messages that were issued there."""


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
    if proved and alone_in_exchange(case, roots):
        return too_many(roots, ())
    return Blame(MissingPartner(), roots, tuple((r,) for r in waiting[:TRIED]), proved=proved, sure=sure)


def fewer_to_anyone(case: Case) -> Blame[MissingPartner] | None:
    """The one rank that has sent one message fewer to the rank that takes them from anyone, where all others, several,
    have sent it equally many.

    Example: rank 0 waits in a recv from any rank, ranks 1 and 2 have sent it 7 messages, rank 3 has sent it 6, and all
    of them wait for rank 0 → rank 3.
    """
    waiting, senders = _sides(case)
    if len(waiting) != 1 or len(senders) <= 2 or len(senders) + 1 != len(case.activities):
        return None
    if not all((journal := case.ranks[r].journal) is not None and journal.has_all_messages for r in senders):
        return None
    sent = {rank: messages_sent(case, rank, waiting[0]) for rank in senders}
    usual = max(sent.values())
    fewer = [rank for rank, count in sent.items() if count != usual]
    if usual < OFTEN or len(fewer) != 1 or sent[fewer[0]] != usual - 1:
        return None
    sure = f"all others have sent rank {waiting[0]} {usual} messages, and rank {fewer[0]} has sent it {usual - 1}"
    found = MissingPartner(left=left_loop(case, fewer[0]))
    # Work that is dealt out need not be dealt evenly: then the one that takes has asked once too often.
    asks = (tuple(waiting),)
    return Blame(found, (fewer[0],), asks, proved=True, confidence=Confidence.POSSIBLE, sure=sure)


def left_out_to_anyone(case: Case) -> Blame[MissingPartner] | None:
    """The one rank that has never sent from a line, from which all others, several, have sent to the ranks that take
    messages from anyone, or that has sent fewer from it than each of them; else the one that alone has run, or written,
    what skips a message.

    Example: rank 0 waits in a recv from any rank, and ranks 1 and 3 have sent their end marks to it, at line 70 → rank
    2.
    """
    waiting, senders = _sides(case)
    if not waiting or len(senders) <= 2:
        return None
    issued = {taker: {rank: _lines_to(case, rank, taker) for rank in senders} for taker in waiting}
    for lacks, says in ((_left_out_by_one, "has sent none"), (_fewer_by_one, "has sent fewer")):
        lacking = [each for lines in issued.values() if all(lines.values()) and (each := lacks(lines))]
        if lacks is _fewer_by_one and not _in_one_call(case, senders):
            continue
        ranks = {rank for each in lacking for rank in each}
        if len(ranks) == 1 and case.activities[next(iter(ranks))].peer not in waiting:  # that one has not come to it
            rank = ranks.pop()
            taker = next(to for to, lines in issued.items() if all(lines.values()) and lacks(lines))
            sure = f"all others have sent rank {taker} messages from a line from which rank {rank} {says}"
            skipped = LeftOut(rank, taker, "send", lacking[0][rank])
            found = MissingPartner(skipped, alone=tuple(skipped_alone(case, rank)))
            return Blame(found, (rank,), proved=True, confidence=Confidence.LIKELY, sure=sure)
    asked = senders if len(senders) <= COMPARED else ()  # each is compared with all others
    skipping = {rank: by for rank in asked if (by := tuple(skipped_alone(case, rank)))}
    if len(skipping) != 1:
        return None
    ((rank, by),) = skipping.items()
    sure = f"rank {rank} alone has run what skips a message"
    return Blame(MissingPartner(alone=by), (rank,), proved=True, confidence=Confidence.LIKELY, sure=sure)


def _sides(case: Case) -> tuple[list[int], list[int]]:
    """(the ranks that take messages from anyone, those that wait for all of them)."""
    takers = [rank for rank, activity in case.activities.items() if is_from_anyone(activity)]
    others = [rank for rank in case.activities if rank not in takers]
    return takers, [rank for rank in others if takers and set(takers) <= case.graph.on(rank)]


def _in_one_call(case: Case, ranks: list[int]) -> bool:
    """True if all these ranks wait in one collective: they have come equally far."""
    calls = {(each.kind, each.group, each.sequence) for each in (case.activities[rank] for rank in ranks)}
    return len(calls) == 1 and next(iter(calls))[0] == ActivityKind.IN_COLLECTIVE


def _lines_to(case: Case, rank: int, peer: int) -> _Lines:
    """The lines from which the rank has sent to that peer; none where some of its messages are forgotten."""
    journal = case.ranks[rank].journal
    found: _Lines = {}
    if journal is None or not journal.has_all_messages:
        return found
    for message in journal.point_to_points:
        stack = journal.stack(message.stack)
        if message_way(message.op) == "send" and message.peer == peer and (own := user_stack(stack)):
            found.setdefault((own[0].file, own[0].line), []).append(stack)
    return found


def _left_out_by_one(issued: dict[int, _Lines]) -> dict[int, Stack]:
    """Rank → a stack of the first line from which all other ranks have issued messages, and this one none."""
    return _lacking(issued, lambda counts, usual: counts == 0 and usual > 0, equal=False)


def _fewer_by_one(issued: dict[int, _Lines]) -> dict[int, Stack]:
    """Rank → a stack of the first line from which all other ranks have issued equally many, and this one fewer."""
    return _lacking(issued, lambda counts, usual: counts < usual and usual >= FEWEST, equal=True)


def _lacking(issued: dict[int, _Lines], lacks: Callable[[int, int], bool], *, equal: bool) -> dict[int, Stack]:
    """Rank → a stack of the first line of which ``lacks(its messages, those of each other rank)``, for this rank only.

    ``equal``: all others must have issued equally many. Example: 3, 2, 3 from line 49 → the rank with 2.
    """
    found: dict[int, Stack] = {}
    for line in sorted({line for lines in issued.values() for line in lines}):
        counts = {rank: len(lines.get(line, ())) for rank, lines in issued.items()}
        fewest = min(counts.values())
        odd = [rank for rank, count in counts.items() if count == fewest]
        usual = Counter(count for count in counts.values() if count != fewest)
        if len(odd) == 1 and (len(usual) == 1 or not equal) and lacks(fewest, min(usual)):
            stacks = [stack for lines in issued.values() for stack in lines.get(line, ())]
            found.setdefault(odd[0], stacks[-1])
    return found
