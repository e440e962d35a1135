"""A message without a partner, by what its peer always did before: it is on its way to it, or has left it out once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.messages.faults import LeftOut
from hangdoc.model.kinds import ActivityKind
from hangdoc.model.operations import message_way

_MOST_MARKS = 16
"""Lines at which a round may begin, that are tried; chosen by hand."""
_FEWEST_ROUNDS = 3
"""Rounds beside the odd one, by which a rank's way is known; chosen by hand."""
_COUNTERPART = {ActivityKind.SEND: "recv", ActivityKind.RECV: "send"}
_MESSAGE = "message"


def is_on_its_way(case: Case, waiter: int, peer: int) -> bool:
    """True if the peer has gone the same way before, from its last message with the waiter and its last such call on,
    and then passed the message.

    Then nothing is missing between the two: what holds up the peer's call does. Example: a peer that always does
    all_reduce, recv waits in the all_reduce → True; one that did recv four times between two of them, and three times
    before this one → False.
    """
    steps = _steps(case, waiter, peer)
    if not steps:
        return False
    *before, now = steps
    latest = [_last(before, step) for step in (now, _MESSAGE)]
    if min(latest) < 0:
        return False
    way = steps[min(latest) :]
    earlier = (at for at in range(min(latest)) if steps[at : at + len(way)] == way)
    return any(_MESSAGE in steps[at + len(way) :] for at in earlier)


def _steps(case: Case, waiter: int, peer: int) -> list[Hashable]:
    """What the peer did, up to the call that it is in: its messages with the waiter, and its calls at that line."""
    program, activity, waiting = case.programs.get(peer), case.activities[peer], case.activities[waiter]
    way = _COUNTERPART.get(waiting.kind)
    if program is None or activity.sequence is None or way is None or not program.journal.point_to_points:
        return []
    key = (activity.group or "", activity.members)
    now = next((t for t in program.pending if (t.group, t.sequence) == (key, activity.sequence)), None)
    if now is None:
        return []
    journal = program.journal
    events: list[tuple[int, Hashable]] = [
        (call.created_ns, program.site(call))
        for call in journal.calls
        if call.created_ns <= now.created_ns and program.site(call) == now.site
    ]
    events += [
        (message.created_ns, _MESSAGE)
        for message in journal.point_to_points
        if message.peer == waiter and message_way(message.op) == way
    ]
    return [step for _, step in sorted(events, key=lambda event: event[0])]


def left_out_of_a_round(case: Case) -> LeftOut | None:
    """The message that a stuck rank waits for, and that its stuck partner left out of one round; None if several did.

    Example: between two recvs from rank 0, rank 1 always made a send to rank 2, and once none → that send.
    """
    found = [left for waiter in sorted(case.graph.stuck) if (left := _left_out_for(case, waiter)) is not None]
    return found[0] if len({left.rank for left in found}) == 1 else None


def _left_out_for(case: Case, waiter: int) -> LeftOut | None:
    """The message that the rank waits for, if its peer is in a call and left it out of one round."""
    waiting = case.activities[waiter]
    peer, way = waiting.peer, _COUNTERPART.get(waiting.kind)
    program = case.programs.get(peer) if peer is not None else None
    if peer is None or way is None or program is None or case.activities[peer].kind != ActivityKind.IN_COLLECTIVE:
        return None
    journal = program.journal
    events: list[tuple[int, Hashable]] = [(call.created_ns, program.site(call)) for call in journal.calls]
    wanted = [m for m in journal.point_to_points if m.peer == waiter and message_way(m.op) == way]
    events += [
        (m.created_ns, _MESSAGE if m in wanted else (m.op, m.peer, journal.stack(m.stack)))
        for m in journal.point_to_points
    ]
    steps = [step for _, step in sorted(events, key=lambda event: event[0])]
    here = steps[-1] if steps else None
    marks = [mark for mark in dict.fromkeys(steps) if mark not in (_MESSAGE, here)]
    by_mark = (_is_left_out_once(steps, mark, here) for mark in marks[:_MOST_MARKS])
    fewer = (1 if any(by_mark) else _fewer_now(steps, here)) if wanted else 0
    return LeftOut(peer, waiter, wanted[-1].op, journal.stack(wanted[-1].stack), fewer) if fewer else None


def _is_left_out_once(steps: list[Hashable], mark: Hashable, here: Hashable) -> bool:
    """True if one of the rounds that begin with ``mark`` has one message less than all others of its kind have.

    The last round goes as far as the call ``here`` that the rank is in. Example, m the mark and c the call: m S c | m S
    c | m S c | m c → True.
    """
    rounds: list[tuple[Hashable, ...]] = []
    for step in steps[steps.index(mark) :]:
        if step == mark:
            rounds.append(())
        elif step in (_MESSAGE, here):
            rounds[-1] += (step,)
    now = rounds[-1]
    if any(each[: len(now)] == now for each in rounds[:-1]):
        rounds.pop()  # the message may come after the call
    often = Counter(rounds)
    odd = [each for each, count in often.items() if count == 1 and _one_less(each, often)]
    return len(odd) == 1 and sum(often.values()) > _FEWEST_ROUNDS


def _fewer_now(steps: list[Hashable], here: Hashable) -> int:
    """How many messages fewer came before the call ``here`` this time, where equally many came before each other one; 0
    where none are missing, or the way is not known.

    Example, c the call: S S c | S S c | S S c | S c → 1.
    """
    counts = [0]
    for step in steps:
        if step == here:
            counts.append(0)
        elif step == _MESSAGE:
            counts[-1] += 1
    *before, now = counts[:-1]  # nothing comes after the call that the rank is in
    known = len(before) >= _FEWEST_ROUNDS and len(set(before)) == 1
    return max(0, before[0] - now) if known else 0


def _one_less(each: tuple[Hashable, ...], often: Counter[tuple[Hashable, ...]]) -> bool:
    """True if the round lacks one message that another kind of round has, which is made of the same but for it."""
    places = range(len(each) + 1)
    return any(often[(*each[:at], _MESSAGE, *each[at:])] for at in places)


def _last(steps: list[Hashable], step: Hashable) -> int:
    """The last place of the step; -1 where it is not there."""
    return next((at for at in range(len(steps) - 1, -1, -1) if steps[at] == step), -1)
