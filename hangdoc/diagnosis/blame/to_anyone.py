"""Ranks that wait for a message of any rank, or of one that no source shows: who has left out its own?

Example: ranks 0 and 1 serve rows, ranks 2 to 4 ask them for rows and then send each an end mark at line 49. Ranks 0 and
1 wait in a recv from any rank; ranks 2 and 4 have sent three end marks to each of them, rank 3 two → rank 3.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable

from hangdoc.diagnosis.blame.left_loop import LeftLoop, left_beside_others, left_loop
from hangdoc.diagnosis.blame.message_blame import (
    ExchangeTooMany,
    MissingPartner,
    alone_in_exchange,
    is_from_anyone,
    messages_sent,
    too_many,
)
from hangdoc.diagnosis.condition.skipped_alone import skipped_alone
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.messages.faults import LeftOut
from hangdoc.diagnosis.source.loops import ways_out
from hangdoc.diagnosis.source.message_calls import passes_message
from hangdoc.diagnosis.source.syntax import LOOPS, enclosing_function, names_in, walk
from hangdoc.model.kinds import MESSAGES, ActivityKind, Confidence
from hangdoc.model.operations import message_way
from hangdoc.model.process import Stack
from hangdoc.model.wording import ranks_text

_FEWEST_EACH = 3
"""Messages of each of the other ranks before one less is odd; chosen by hand."""
_FEWEST_OF_LINE = 2
"""The same of messages from one line, which alone are one less, by ranks that are in one call; chosen by hand."""
_FEWEST_ASKING = 2
"""Ranks in the loop that one rank has left, from which on that one is the odd one; chosen by hand."""
_MOST_COMPARED = 64
"""Ranks that are compared one by one with all others; chosen by hand: the cost is their square."""
_MOST_NAMED = 8
"""Alternatives in a report; chosen by hand: a longer list helps nobody."""
_Line = tuple[str, int]
_Lines = dict[_Line, list[Stack]]
"""(file, line) → the stacks of the messages that were issued there."""


def unseen_partner(case: Case) -> Blame[MissingPartner | ExchangeTooMany] | None:
    """The ranks in a send or recv whose peer no source shows, if all others wait for them.

    Any rank that waits may be the partner. Example: rank 0 is in a recv from any rank, 1 and 2 wait for 0 in barrier →
    rank 0, alternatives (1,) and (2,).
    """
    sender = unanswered(case) or fewer_to_anyone(case) or left_out_to_anyone(case) or left_the_others(case)
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
    return Blame(MissingPartner(), roots, tuple((r,) for r in waiting[:_MOST_NAMED]), proved=proved, sure=sure)


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
    if usual < _FEWEST_EACH or len(fewer) != 1 or sent[fewer[0]] != usual - 1:
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
    asked = senders if len(senders) <= _MOST_COMPARED else ()  # each is compared with all others
    skipping = {rank: by for rank in asked if (by := tuple(skipped_alone(case, rank)))}
    if len(skipping) != 1:
        return None
    ((rank, by),) = skipping.items()
    sure = f"rank {rank} alone has run what skips a message"
    return Blame(MissingPartner(alone=by), (rank,), proved=True, confidence=Confidence.LIKELY, sure=sure)


def unanswered(case: Case) -> Blame[MissingPartner] | None:
    """The rank that takes messages from anyone, where it has taken a request of the only rank that waits for its
    answer, and has answered each of its requests before.

    Example: rank 2 has sent three requests to rank 0 and got two answers, rank 0 waits for the next request of any
    rank, and ranks 1 and 3 are in the barrier behind theirs → rank 0.
    """
    takers = [rank for rank, activity in case.activities.items() if is_from_anyone(activity)]
    asking = [rank for rank, activity in case.activities.items() if activity.peer in takers]
    others = [rank for rank in case.activities if rank not in (*takers, *asking)]
    if len(takers) != 1 or len(asking) != 1 or any(case.activities[rank].kind in MESSAGES for rank in others):
        return None
    (taker,), (rank,) = takers, asking
    mine, journal = case.ranks[rank].journal, case.ranks[taker].journal
    if mine is None or journal is None or not mine.has_all_messages or not others:
        return None
    ways = [message_way(m.op) for m in mine.point_to_points if m.peer == taker]
    given = [m for m in journal.point_to_points if m.peer == rank and message_way(m.op) == "send"]
    awaited = [at for at, way in enumerate(ways) if way == "recv"]
    if not given or len(given) != len(awaited) - 1 or any(at == 0 or ways[at - 1] != "send" for at in awaited):
        return None
    skipped = LeftOut(taker, rank, "send", journal.stack(given[-1].stack))
    sure = f"rank {rank} has sent rank {taker} {len(awaited)} requests, and got {len(given)} answers"
    return Blame(MissingPartner(skipped), (taker,), proved=True, confidence=Confidence.LIKELY, sure=sure)


def left_the_others(case: Case) -> Blame[MissingPartner] | None:
    """The one rank that has left the loop in which all others wait for the answer of the rank that takes messages from
    anyone: it alone could still send one. Not one that went through all of the loop, or was sent away.

    Example: rank 0 waits for the gradients of any worker, and holds its answers back until the slowest has sent its
    own; ranks 1, 2 and 4 wait for these answers in `for step in range(steps):`, and rank 3 is past that loop → rank 3.
    """
    takers = [rank for rank, activity in case.activities.items() if is_from_anyone(activity)]
    if len(takers) != 1:
        return None
    (taker,) = takers
    asking = [r for r, a in case.activities.items() if a.kind == ActivityKind.RECV and a.peer == taker]
    gone = [rank for rank in case.activities if rank not in asking and rank != taker]
    if len(gone) != 1 or len(asking) < _FEWEST_ASKING or case.activities[gone[0]].kind in MESSAGES:
        return None
    left = left_loop(case, gone[0]) if case.has_history else left_beside_others(case, taker, gone[0])
    if left is None or not set(asking) <= set(left.still) or not _left_by_itself(case, left):
        return None
    sure = f"{ranks_text(tuple(asking))} wait for rank {taker} in the loop that rank {gone[0]} has left"
    return Blame(MissingPartner(left=left), (gone[0],), proved=True, confidence=Confidence.LIKELY, sure=sure)


def _left_by_itself(case: Case, left: LeftLoop) -> bool:
    """True if the loop can end early, by nothing that the function has received, and the function sends nothing behind
    it: who goes through all its items, is sent away or takes its leave may have gone.

    Example: `if loss < self.goal: ⏎ return`; not `dist.recv(order, src=0) ⏎ if order.item() == STOP: ⏎ return`.
    """
    tree = case.sources.function(left.frame.file, left.frame.line)
    here = enclosing_function(tree, left.frame.line) if tree is not None else None
    out = {line for line, _ in ways_out(tree, left.frame.line)} if tree is not None else set()
    if here is None or not out:
        return False
    calls = [node for node in walk(here) if isinstance(node, ast.Call)]
    loop = next((n for n in walk(here) if isinstance(n, LOOPS) and n.lineno == left.frame.line), here)
    end = getattr(loop, "end_lineno", None) or left.frame.line
    if any(call.lineno > end and passes_message(case.sources, call, names("sends_message")) for call in calls):
        return False
    taking = [call for call in calls if passes_message(case.sources, call, names("receives_message"))]
    received = {name for call in taking for argument in call.args[:1] for name in names_in(argument)}
    for node in walk(here):
        if isinstance(node, ast.Assign):
            computed = any(isinstance(part, ast.BinOp) for part in walk(node.value))
            if any(part in taking for part in walk(node.value)) or (not computed and _names(node.value, received)):
                received |= {name for target in node.targets for name in names_in(target)}
    out.add(left.frame.line)
    tests = (n.test for n in walk(here) if isinstance(n, ast.If | ast.While) and n.lineno in out)
    return not any(_names(test, received) for test in tests)


def _names(expression: ast.expr, wanted: set[str]) -> bool:
    """True if the expression names one of these, or what belongs to it: `word.item()` names 'word'."""
    return any(name == each or name.startswith(f"{each}.") for name in names_in(expression) for each in wanted)


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
    return _lacking(issued, lambda counts, usual: counts < usual and usual >= _FEWEST_OF_LINE, equal=True)


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
