"""The way to a message on which its partner is missing, where stacks alone are there to see."""

from __future__ import annotations

from hangdoc.diagnosis.bounds import NAMED
from hangdoc.diagnosis.condition.candidates import diverging_guards
from hangdoc.diagnosis.condition.loops.way_out import way_out_of
from hangdoc.diagnosis.condition.ways_past import is_settled, loop_left
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.model.diagnosis import Activity
from hangdoc.model.kinds import MESSAGES, ActivityKind
from hangdoc.model.message import Condition
from hangdoc.model.operations import message_way
from hangdoc.model.process import Stack


def way_to_message(case: Case, peer: int) -> list[Condition]:
    """The conditions of the user's on the way to the message that several ranks exchange with ``peer``, by which the
    peer can have gone past it, the likeliest first.

    Not those on the rank, by which it would never have come there. Example: ranks 1 and 3 wait for rank 2 in
    `exchange()`, which begins with `if not self.wet: return`, and rank 2 is in the all_reduce after it → that `if`.
    """
    waiting = tuple(r for r, a in case.activities.items() if a.kind in MESSAGES and a.peer == peer)
    if len(waiting) < 2 or case.has_history:
        return []
    stack = case.activities[waiting[0]].stack
    points = diverging_guards(case.sources, case.values, (case.activities[peer].stack, stack), ((peer,), waiting))
    mine = [p for p in points if p.guarded == 1 and not (p.of_library or p.rank_like)]
    mine = [(way_out_of(case, p) if p.uneven else None) or p for p in mine if not is_settled(case, p.guard, p.file)]
    return list(dict.fromkeys(Condition(p.guard.condition, p.file, p.guard.line) for p in mine))[:NAMED]


def issued_further_on(case: Case, waiter: Activity, peer: int) -> Stack:
    """The stack of the first message like the awaited one that others have issued to the same rank from lines to which
    the peer, which has left the loop of its last such message, has never come; () where there is none.

    Example: ranks 1 and 2 send batches to rank 0 in a loop and a stop mark in `finish()` after it; rank 2 is in the
    barrier behind that, and only rank 1 has sent its mark → rank 1's stack in `finish()`.
    """
    way = "send" if waiter.kind == ActivityKind.RECV else "recv"
    issued: dict[int, list[Stack]] = {}
    for rank, each in case.ranks.items():
        journal = each.journal
        for message in journal.point_to_points if journal is not None else ():
            if journal is not None and message.peer == waiter.rank and message_way(message.op) == way:
                issued.setdefault(rank, []).append(journal.stack(message.stack))
    mine = issued.pop(peer, [])
    if not mine or loop_left(case, mine[-1], peer) is None:
        return ()
    known, last = {_lines(user_stack(stack)) for stack in mine}, _lines(user_stack(mine[-1]))
    for stacks in issued.values():
        ways = [_lines(user_stack(stack)) for stack in stacks]
        further = [stack for stack, way in zip(stacks, ways, strict=True) if way not in known]
        if last in ways and further:
            return further[0]
    return ()


def _lines(way: Stack) -> tuple[tuple[str, int | None], ...]:
    return tuple((frame.file, frame.line) for frame in way)
