"""Ranks wait for something that processes share, and who was to end that wait, or to meet them there, is past it: a
value in shared memory, an event or a barrier of multiprocessing's, which are no calls of the job's groups."""

from __future__ import annotations

from hangdoc.diagnosis.condition.stack_comparison import in_one_loop, is_past
from hangdoc.diagnosis.context import Case
from hangdoc.model.kinds import COMMUNICATING, GONE, ActivityKind

POLLING = (ActivityKind.SLEEPING, ActivityKind.COMPUTING)
"""What a rank does that asks again and again for a value in shared memory."""


def is_past_them(case: Case, rank: int, waiting: int) -> bool:
    """True if the rank has ended, or waits in a call behind the line at which the other one waits; where both are in
    one loop, for that one."""
    mine, theirs = case.activities[rank], case.activities[waiting]
    if mine.kind not in COMMUNICATING:
        return mine.kind in GONE
    past = is_past(case.sources, mine.stack, theirs.stack)
    ahead = waiting in case.graph.on(rank)
    return past == "certainly" or (ahead and (past == "perhaps" or in_one_loop(case.sources, mine.stack, theirs.stack)))
