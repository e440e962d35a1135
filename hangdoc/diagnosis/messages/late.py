"""A message without a partner, by what its peer always did before: it is on its way to it, or has left it out once."""

from __future__ import annotations

from collections.abc import Hashable

from hangdoc.diagnosis.context import Case
from hangdoc.model.kinds import ActivityKind
from hangdoc.model.operations import message_way

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


def _last(steps: list[Hashable], step: Hashable) -> int:
    """The last place of the step; -1 where it is not there."""
    return next((at for at in range(len(steps) - 1, -1, -1) if steps[at] == step), -1)
