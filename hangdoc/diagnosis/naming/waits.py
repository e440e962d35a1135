"""What kind of wait a rank is in in the end: that of the thread at which its own wait ends, or what it polls for."""

from __future__ import annotations

from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.landmarks import landmark
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.program.program import Program
from hangdoc.diagnosis.state.endings import ended_well
from hangdoc.diagnosis.state.process import at_rest
from hangdoc.diagnosis.state.threads import Chain, End
from hangdoc.model.diagnosis import Activity
from hangdoc.model.kinds import COMMUNICATING, ActivityKind, WaitReason

Wait = tuple[ActivityKind, WaitReason | None]
_TAKES_LOCK = ("takes_file_lock", "creates_new")


def wait_of(case: Case, program: Program, activity: Activity) -> Wait:
    """The wait itself, where no thread that it leads to shows another; a poll for a lock that is a file is one for a
    lock.

    Example: a rank reads from a socket that a thread of another rank serves, which waits for a lock → LOCK.
    """
    chain = case.chains.get(activity.rank)
    if chain is not None:
        return _end_of(chain, activity), None
    if activity.kind == ActivityKind.SLEEPING and _tries_to_lock(program, activity):
        return ActivityKind.FILE_LOCK, None
    return activity.kind, activity.reason


def _end_of(chain: Chain, activity: Activity) -> ActivityKind:
    """Main threads that wait for each other's answers are what each of them is."""
    last = chain.last
    if chain.end in (End.CIRCLE, End.CALL):
        return ActivityKind.LOCK if any(not hop.node.is_main for hop in chain.hops) else activity.kind
    kind = at_rest(last.process, last.thread, last.thread.frames).kind
    return activity.kind if kind in COMMUNICATING | {ActivityKind.EVENT_LOOP} else kind


def _tries_to_lock(program: Program, activity: Activity) -> bool:
    """True if the function that sleeps tries to make something that must not be there yet, or to lock it."""
    where = next(iter(user_stack(activity.stack)), None)
    function = program.function(where.file, where.line) if where is not None else None
    if where is None or function is None:
        return False
    words = {word for entry in _TAKES_LOCK for word in names(entry)}
    places = (place for word in words for place in program.places.naming(word))
    return any(file == where.file and function.line <= line <= function.end_line for file, line in places)


def is_shutting_down(case: Case, activity: Activity) -> bool:
    """True if the rank's program is over, or it is the last one left and waits for what is its own."""
    marks = (landmark(frame) for frame in activity.stack)
    if any(mark is not None and mark.kind == ActivityKind.SHUTTING_DOWN for mark in marks):
        return True
    others = [snapshot for rank, snapshot in case.ranks.items() if rank != activity.rank]
    return bool(others) and all(map(ended_well, others))
