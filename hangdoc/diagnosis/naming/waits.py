"""What kind of wait a rank is in in the end: that of the thread at which its own wait ends, or what it polls for."""

from __future__ import annotations

from hangdoc.diagnosis.causes.polled import tries_to_lock
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.landmarks import landmark
from hangdoc.diagnosis.program.program import Program
from hangdoc.diagnosis.state.endings import ended_well
from hangdoc.diagnosis.state.process import at_rest
from hangdoc.diagnosis.state.threads import Chain, End
from hangdoc.model.diagnosis import Activity
from hangdoc.model.kinds import COMMUNICATING, ActivityKind, WaitReason

Wait = tuple[ActivityKind, WaitReason | None]


def wait_of(case: Case, program: Program, activity: Activity) -> Wait:
    """The wait itself, where no thread that it leads to shows another; a poll for a lock that is a file is one for a
    lock.

    Example: a rank reads from a socket that a thread of another rank serves, which waits for a lock → LOCK.
    """
    chain = case.chains.get(activity.rank)
    if chain is not None:
        return _end_of(chain, activity), None
    if activity.kind == ActivityKind.SLEEPING and tries_to_lock(program, activity):
        return ActivityKind.FILE_LOCK, None
    return activity.kind, activity.reason


def _end_of(chain: Chain, activity: Activity) -> ActivityKind:
    """Main threads that wait for each other's answers are what each of them is."""
    last = chain.last
    if chain.end in (End.CIRCLE, End.CALL):
        return ActivityKind.LOCK if any(not hop.node.is_main for hop in chain.hops) else activity.kind
    kind = at_rest(last.process, last.thread, last.thread.frames).kind
    return activity.kind if kind in COMMUNICATING | {ActivityKind.EVENT_LOOP} else kind


def is_shutting_down(case: Case, activity: Activity) -> bool:
    """True if the rank's program is over, or it is the last one left and waits for what is its own."""
    marks = (landmark(frame) for frame in activity.stack)
    if any(mark is not None and mark.kind == ActivityKind.SHUTTING_DOWN for mark in marks):
        return True
    others = [snapshot for rank, snapshot in case.ranks.items() if rank != activity.rank]
    return bool(others) and all(map(ended_well, others))
