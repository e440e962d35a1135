"""A message that both sides have issued and that never arrives: whoever issued it asynchronously let go of its work.

gloo withdraws what its last handle lets go of before the message has left, so that `dist.isend(x, 1)`, whose result
nobody keeps, sends only if rank 1 is already in its recv. The histories show it: the message of the rank that waits has
its partner, which is no longer under way.
"""

from __future__ import annotations

from dataclasses import dataclass

from hangdoc.diagnosis.calls.message_pairs import Alone, paired
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Explanation
from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.frames.library import is_library
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.model.kinds import MESSAGES, Confidence
from hangdoc.model.operations import message_way
from hangdoc.model.process import Frame, Stack


@dataclass(frozen=True, slots=True)
class DroppedWork(Explanation):
    """``rank`` issued, at ``frame``, the ``way`` ('send' or 'recv') that ``waiter`` waits for, and let go of it."""

    rank: int
    waiter: int
    way: str
    frame: Frame | None


def dropped_work(case: Case) -> Blame[DroppedWork] | None:
    """The stuck rank whose message was withdrawn before its stuck partner came to take it; None where several were.

    Example: rank 0 waits in its 200th recv from rank 2, whose 200th isend to it is over, and rank 2 in all_reduce →
    rank 2.
    """
    if case.streams or not case.has_history:
        return None  # a device keeps what was issued to its stream
    journals = {rank: j for rank in case.graph.stuck if (j := case.ranks[rank].journal) is not None}
    whole = {rank: journal for rank, journal in journals.items() if journal.has_all_messages}
    found: dict[int, DroppedWork] = {}
    for pair in paired(whole):
        over = [each for each in pair if each.message.completed]
        waiting = [each for each in pair if not each.message.completed and _waits_in(case, each)]
        if len(over) == len(waiting) == 1:
            stack = whole[over[0].rank].stack(over[0].message.stack)
            if _is_left_to_the_caller(stack):
                line = next(iter(user_stack(stack)), None)
                way = message_way(over[0].message.op)
                found.setdefault(over[0].rank, DroppedWork(over[0].rank, waiting[0].rank, way, line))
    if len(found) != 1:
        return None
    ((rank, dropped),) = found.items()
    sure = f"the histories of both ranks: the {dropped.way} is no longer under way, and has not arrived"
    return Blame(dropped, (rank,), proved=True, confidence=Confidence.LIKELY, sure=sure)


def _waits_in(case: Case, each: Alone) -> bool:
    """True if the rank waits in such a message with that peer."""
    activity = case.activities[each.rank]
    alike = activity.peer == each.message.peer and activity.kind == message_way(each.message.op)
    return activity.kind in MESSAGES and alike


def _is_left_to_the_caller(stack: Stack) -> bool:
    """True of isend, irecv and batches, which do not wait for their work themselves."""
    waits = names("waits_for_its_message")
    return bool(stack) and not any(plain(f.function) in waits for f in stack if is_library(f))
