"""The way to a message on which its partner is missing, where stacks alone are there to see."""

from __future__ import annotations

from hangdoc.diagnosis.condition.ways_past import loop_left
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.model.diagnosis import Activity
from hangdoc.model.kinds import ActivityKind
from hangdoc.model.operations import message_way
from hangdoc.model.process import Stack


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
