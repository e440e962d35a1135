"""A message of a device's batch that its peer cannot take: of another size, or to a rank that expects none.

Batches and messages hold up a device as calls do, so every rank waits in the end, and the wait-for graph shows a circle
or none at all. What the rank always did at that line tells the two sides apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod

from hangdoc.diagnosis.bounds import OFTEN, TRIED
from hangdoc.diagnosis.calls.message_pairs import Alone, alone, paired
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Explanation
from hangdoc.diagnosis.frames.stacks import Site, site_of, user_stack
from hangdoc.model.journal import Journal, PointToPoint
from hangdoc.model.kinds import Confidence
from hangdoc.model.operations import message_way
from hangdoc.model.process import Frame

_Sizes = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class UnequalSizes(Explanation):
    """``sender`` sends another number of elements than ``receiver`` expects."""

    sender: int
    receiver: int
    sent: _Sizes
    wanted: _Sizes
    sent_at: Frame | None
    wanted_at: Frame | None


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


def stray_message(case: Case) -> Blame[UnequalSizes | WrongPeer] | None:
    """The rank whose message differs from all that it passed before, where its peer's does not."""
    if not case.streams:
        return None
    journals = {rank: program.journal for rank, program in case.programs.items()}
    found = next((b for b in _unequal(journals) if b.culprits and b.confidence is not Confidence.POSSIBLE), None)
    return found or _to_another_rank(journals)


def unequal_message(case: Case) -> Blame[UnequalSizes] | None:
    """Two sides of a message that differ in size, where nothing shows which of them is wrong."""
    if not case.streams:
        return None
    return next(_unequal({rank: program.journal for rank, program in case.programs.items()}), None)


def _unequal(journals: Mapping[int, Journal]) -> Iterator[Blame[UnequalSizes]]:
    """The messages under way whose sides differ in size, the oldest first.

    A size that both sides have used before is no fault of its own: a message is missing, or one too many, and the two
    do not belong together. Example: rank 0 sends [4] where it always sent [8], and rank 1 expects [8] → rank 0.
    """
    pairs = [
        (send, recv)
        for send, recv in paired(journals)
        if not (send.message.completed and recv.message.completed)
        and send.message.sizes
        and recv.message.sizes
        and _count(send.message.sizes) != _count(recv.message.sizes)
    ]
    for send, recv in sorted(pairs, key=lambda pair: pair[0].message.created_ns):
        usual = [_is_usual(journals[each.rank], each.message) for each in (send, recv)]
        if all(usual):
            continue
        frames = [_frame(journals[each.rank], each.message) for each in (send, recv)]
        found = UnequalSizes(send.rank, recv.rank, send.message.sizes, recv.message.sizes, *frames)
        if any(usual):
            odd, other = (recv, send) if usual[0] else (send, recv)
            sure = f"rank {odd.rank} never passed that size before, and rank {other.rank} did"
            yield Blame(found, (odd.rank,), proved=True, confidence=Confidence.LIKELY, sure=sure)
        else:
            sure = "either side may have the wrong size"
            yield Blame(found, (send.rank,), ((recv.rank,),), proved=True, sure=sure)


def _count(sizes: _Sizes) -> int:
    return sum(prod(size) for size in sizes)


def _is_usual(journal: Journal, message: PointToPoint) -> bool:
    """True if the rank passed another message of that way and size."""
    return any(m is not message and (m.op, m.sizes) == (message.op, message.sizes) for m in journal.point_to_points)


def _frame(journal: Journal, message: PointToPoint) -> Frame | None:
    return next(iter(user_stack(journal.stack(message.stack))), None)


def _to_another_rank(journals: Mapping[int, Journal]) -> Blame[WrongPeer] | None:
    """The one message to, or from, another rank than all others of its line, whose usual peer waits for it.

    The rank that it took may have taken it for the next one. Example: rank 1 always sends to 2 at a line, once to 5,
    and rank 2 waits for it → rank 1, took 5, waits 2.
    """
    pending = [each for each in alone(journals) if not each.message.completed]
    found: dict[tuple[int, int], WrongPeer] = {}
    for waiter in pending:
        rank, way = waiter.message.peer, message_way(waiter.message.op)
        journal = journals.get(rank)
        odd = _odd_at_line(journal, "recv" if way == "send" else "send", waiter) if journal is not None else None
        if odd is not None and journal is not None:
            stray = WrongPeer(rank, message_way(odd.op), odd.peer, waiter.rank, _frame(journal, odd))
            if odd.completed or _fits_none(stray, pending):
                found.setdefault((rank, odd.peer), stray)
    if len(found) != 1:
        return None
    (stray,) = found.values()
    sure = f"rank {stray.rank} had always another peer at that line, and that one waits for it"
    return Blame(stray, (stray.rank,), proved=True, confidence=Confidence.LIKELY, sure=sure)


def _odd_at_line(journal: Journal, way: str, waiter: Alone) -> PointToPoint | None:
    """The latest message of that way, where it is the only one of its line that is not with the rank that waits."""
    by_line: dict[Site, list[PointToPoint]] = {}
    for message in journal.point_to_points:
        if message_way(message.op) == way and message.group == waiter.message.group:
            by_line.setdefault(site_of(journal.stack(message.stack)), []).append(message)
    for messages in by_line.values():
        odd = [message for message in messages if message.peer != waiter.rank]
        usual = len(messages) - len(odd)
        if len(odd) == 1 and usual >= (OFTEN if odd[0].completed else 1) and odd[0] in messages[-TRIED:]:
            return odd[0]
    return None


def _fits_none(found: WrongPeer, pending: list[Alone]) -> bool:
    """True if the rank that it took waits for no message of its."""
    return not any(each.rank == found.took and each.message.peer == found.rank for each in pending)
