"""A rank that makes a call of all before it passes a message, without which the others do not come to that call."""

from __future__ import annotations

from dataclasses import dataclass

from hangdoc.diagnosis.blame.arguments import missing_partners
from hangdoc.diagnosis.blame.wait_cycle import would_free_all
from hangdoc.diagnosis.condition.branch_point import is_rank_name
from hangdoc.diagnosis.condition.message_after_call import message_after_call
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Explanation
from hangdoc.diagnosis.frames.stacks import fork
from hangdoc.diagnosis.source.guards import CONDITIONS, guards, split_at_loop
from hangdoc.model.kinds import ActivityKind, Confidence
from hangdoc.model.message import Condition
from hangdoc.model.process import Frame


@dataclass(frozen=True, slots=True)
class CallBeforeMessage(Explanation):
    """``rank`` waits in a collective, and passes what ``waiter`` awaits only after it, at ``line``. ``under``: the
    conditions of that collective within the round."""

    rank: int
    waiter: int
    line: Frame
    under: tuple[Condition, ...]


def call_before_message(case: Case) -> Blame[CallBeforeMessage] | None:
    """The rank in a collective that would free all others by passing its message first; None where a condition on the
    rank leads to that collective, so that the others never come to it.

    Example: rank 0 is in the barrier of process() and sends to rank 1 in pass_on() behind it; rank 1 waits for that
    message in take(), before its own process() → rank 0.
    """
    for waiter, peer in missing_partners(case):
        activity = case.activities[waiter]
        if case.activities[peer].kind != ActivityKind.IN_COLLECTIVE or peer not in would_free_all(case):
            continue
        line = message_after_call(case, activity, peer)
        under = _conditions(case, waiter, peer) if line is not None else None
        if line is not None and under is not None:
            found = CallBeforeMessage(peer, waiter, line, under)
            sure = f"in their round, rank {peer}'s message comes behind its call, and rank {waiter}'s before that call"
            return Blame(found, (peer,), proved=True, confidence=Confidence.LIKELY, sure=sure)
    return None


def _conditions(case: Case, waiter: int, peer: int) -> tuple[Condition, ...] | None:
    """The conditions on the peer's way from the function that both are in to its call; None where one is on the
    rank."""
    way = fork(case.activities[waiter].stack, case.activities[peer].stack)
    found: list[Condition] = []
    for at, frame in enumerate(way.theirs[way.common :]):
        tree = case.sources.function(frame.file, frame.line)
        around = guards(tree, frame.line) if tree is not None else []
        inside = split_at_loop(around)[1]
        inner = inside[1:] if inside and not at else around
        if any(is_rank_name(name) for guard in inner for name in guard.names):
            return None
        found += [Condition(g.condition, frame.file, g.line) for g in inner if g.kind in CONDITIONS]
    return tuple(found)
