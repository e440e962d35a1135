"""What is each rank doing? Issued, completed and blocked-on kept apart: the line a rank blocks on need not be
the line of the call that hangs."""

from __future__ import annotations

from dataclasses import replace

from hangdoc.diagnosis.calls.history import RankProgram, Token, group_label
from hangdoc.diagnosis.frames.landmarks import below_user, number_below_user, plain, words
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.frames.operations import message_way
from hangdoc.diagnosis.frames.stacks import site_of, user_stack
from hangdoc.diagnosis.state.process import Wait, at_rest, blocking_thread, descendants, is_moving, kind_mark
from hangdoc.model.diagnosis import Activity
from hangdoc.model.journal import Journal, PointToPoint, StoreWait
from hangdoc.model.kinds import ActivityKind
from hangdoc.model.process import Frame, Process, Stack, Thread
from hangdoc.model.snapshot import RankSnapshot

UNSEEN = "unseen"
"""Identity of a rank that some process of the job may be that does not say which it is."""

_DONE_BY_CHILDREN = frozenset({ActivityKind.WAITING_FOR_CHILD, ActivityKind.WAITING_FOR_WORKER, ActivityKind.COMPILING})


def describe(rank: RankSnapshot, program: RankProgram | None) -> Activity:
    """The activity of one rank, from both looks and its journal."""
    if rank.identity == UNSEEN:
        return Activity(rank.rank, rank.host, None, ActivityKind.NOT_VISIBLE, "nothing is known of this rank")
    if rank.process is None and rank.exit is None and rank.journal is not None and rank.journal.source == "dump":
        return _from_dump(rank, program)
    gone = _gone(rank)
    if gone is not None:
        main = rank.process.last.main if rank.process and rank.process.last else None
        stack = rank.exit.stack if rank.exit else main.frames if main else ()
        pid = rank.process.pid if rank.process else None
        return Activity(rank.rank, rank.host, pid, gone.kind, gone.text, where=_first(stack), stack=stack)
    process = rank.process
    assert process is not None  # _gone covers it
    thread = blocking_thread(process)
    stack = thread.frames if thread else ()
    moving = is_moving(process)
    doing, token, peer = _what(rank, process, thread, stack, program, moving)
    kind = doing.kind
    if kind in _DONE_BY_CHILDREN:
        moving = moving or any(is_moving(child) for child in descendants(process))
    if not stack and token is not None:
        stack = token.stack
    main = process.last.main if process.last else None
    failed_at = rank.journal.failed_at if rank.journal is not None and kind == ActivityKind.SHUTTING_DOWN else ()
    return Activity(
        rank=rank.rank,
        host=rank.host,
        pid=process.pid,
        kind=kind,
        text=doing.text,
        reason=doing.reason,
        # A library's thread works for the line that the main thread stands at.
        where=_first(stack)
        or (token.frame if token else None)
        or _first(main.frames if main else ())
        or _first(failed_at),
        stack=stack,
        moving=moving,
        op=token.op if token else None,
        group=token.group[0] if token else None,
        members=token.group[1] if token else (),
        sequence=token.sequence if token else None,
        peer=peer,
        # Of an idle event loop the text says already what its tasks await.
        landmark=None if kind == ActivityKind.EVENT_LOOP else words(stack) or (words(token.stack) if token else None),
    )


def _from_dump(rank: RankSnapshot, program: RankProgram | None) -> Activity:
    """A dump file is all there is: the oldest call that had not completed when the job wrote it."""
    token = pending_call(program, ())
    if token is None:
        return Activity(rank.rank, rank.host, None, ActivityKind.NOT_VISIBLE, "no call pending in its dump")
    return Activity(
        rank=rank.rank,
        host=rank.host,
        pid=None,
        kind=ActivityKind.IN_COLLECTIVE,
        text=call_text(token, program),
        where=token.frame,
        stack=token.stack,
        op=token.op,
        group=token.group[0],
        members=token.group[1],
        sequence=token.sequence,
        landmark=words(token.stack),
    )


def _first(stack: Stack) -> Frame | None:
    frames = user_stack(stack)
    return frames[0] if frames else None


def _gone(rank: RankSnapshot) -> Wait | None:
    if rank.exit is not None:
        return Wait(ActivityKind.EXITED, exit_text(rank))
    if rank.process is None:
        return Wait(ActivityKind.ABSENT, "no process carries this rank")
    last = rank.process.last
    if last is None:
        return None
    if last.state in ("Z", "X", "x"):
        return Wait(ActivityKind.ZOMBIE, "ended, not yet reaped by its parent")
    if last.state in ("T", "t"):
        if last.tracer_pid:
            return Wait(ActivityKind.STOPPED, f"held by a debugger (process {last.tracer_pid})")
        return Wait(ActivityKind.STOPPED, f"stopped (state {last.state})")
    if last.state == "D" and all(look.state == "D" for look in rank.process.looks):
        channel = last.main.wchan if last.main else None
        return Wait(ActivityKind.UNINTERRUPTIBLE, "uninterruptible (state D)" + (f" in {channel}" if channel else ""))
    return None


def exit_text(rank: RankSnapshot) -> str:
    """How the process ended, in words."""
    end = rank.exit
    if end is None:
        return "ended"
    if end.fatal_signal:
        return f"killed by signal {end.fatal_signal}"
    if end.exception:
        return f"ended with {end.exception}"
    if end.status is not None:
        return f"exited with status {end.status}"
    return "ended, status unknown"


def _what(
    rank: RankSnapshot,
    process: Process,
    thread: Thread | None,
    stack: Stack,
    program: RankProgram | None,
    moving: bool,
) -> tuple[Wait, Token | None, int | None]:
    """What the rank does, the call it waits in, and the peer of its message."""
    mark = kind_mark(stack)
    kind = mark.kind if mark else None
    pending = pending_call(program, stack)
    if kind in (None, ActivityKind.IN_COLLECTIVE):
        pointed = pending_p2p(rank, stack)
        if pointed is not None and (pending is None or pointed.created_ns >= pending.created_ns):
            verb = ActivityKind.SEND if message_way(pointed.op) == "send" else ActivityKind.RECV
            if pointed.op == "monitored_barrier":
                return Wait(ActivityKind.IN_COLLECTIVE, "monitored_barrier"), None, None
            arrow = "to" if verb == ActivityKind.SEND else "from"
            peer = pointed.peer if pointed.peer >= 0 else None
            who = f"rank {peer}" if peer is not None else "any rank"
            return Wait(verb, f"{pointed.op} {arrow} {who}"), None, peer
        wait = _store_wait(rank, thread)
        if wait is not None and not kind:
            return (
                Wait(ActivityKind.STORE_WAIT, f"{wait.operation} of {', '.join(wait.keys[:3]) or 'a key'}"),
                None,
                None,
            )
    if kind == ActivityKind.IN_COLLECTIVE and not (moving and pending is None):
        if pending is not None:
            return Wait(kind, call_text(pending, program)), pending, None
        op = python_op(stack)
        if message_way(op):
            peer = number_below_user(stack, *names("peer_local"))
            return Wait(ActivityKind.SEND if message_way(op) == "send" else ActivityKind.RECV, op), None, peer
        if thread is not None and thread.state != "R":
            return Wait(kind, op or words(stack) or "a collective"), None, None
    rest = at_rest(process, thread, stack)
    waits = rest.kind in (ActivityKind.LOCK, ActivityKind.NOT_VISIBLE) and thread is not None and thread.state == "S"
    if pending is not None and waits and not _of_another(pending, process, thread):
        return Wait(ActivityKind.IN_COLLECTIVE, call_text(pending, program)), pending, None
    return rest, None, None


def in_message(activity: Activity, message: PointToPoint, journal: Journal | None) -> Activity:
    """The activity of a rank that waits for this message, unless it says so already."""
    verb = ActivityKind.SEND if message_way(message.op) == "send" else ActivityKind.RECV
    if (activity.kind, activity.peer) == (verb, message.peer) or journal is None:
        return activity
    text = f"{message.op} {'to' if verb == ActivityKind.SEND else 'from'} rank {message.peer}"
    return replace(activity, kind=verb, text=text, peer=message.peer)


def _of_another(call: Token, process: Process, thread: Thread | None) -> bool:
    """Does another thread, which issued the call, stand in it itself?"""
    if not call.thread_id or thread is None or call.thread_id == thread.python_id or process.last is None:
        return False
    issuer = next((t for t in process.last.threads if t.python_id == call.thread_id), None)
    mark = kind_mark(issuer.frames) if issuer is not None else None
    return mark is not None and mark.kind == ActivityKind.IN_COLLECTIVE


def call_text(token: Token, program: RankProgram | None) -> str:
    """'all_reduce  default_pg #1042'."""
    group = program.groups.get(token.group[0]) if program else None
    return f"{token.op}  {group_label(token.group[0], group.description if group else '')} #{token.sequence}"


def pending_call(program: RankProgram | None, stack: Stack) -> Token | None:
    """The uncompleted call that the thread waits in: the one issued from the line it stands at, else the oldest."""
    if program is None:
        return None
    pending = program.pending
    if not pending:
        return None
    here = site_of(stack)
    return next((t for t in pending if here and t.site[: len(here)] == here), None) or next(
        (t for t in pending if here and t.site and t.site[0][:2] == here[0][:2]), pending[0]
    )


def pending_p2p(rank: RankSnapshot, stack: Stack) -> PointToPoint | None:
    """The point-to-point call that has not returned, or, for asynchronous ones, that the thread waits for."""
    if rank.journal is None:
        return None
    pending = [p for p in rank.journal.point_to_points if not p.completed]
    if not pending:
        return None
    here = site_of(stack)
    return next((p for p in pending if site_of(rank.journal.stack(p.stack)) == here), pending[0])


def _store_wait(rank: RankSnapshot, thread: Thread | None) -> StoreWait | None:
    if rank.journal is None or not rank.journal.store_waits:
        return None
    mine = [w for w in rank.journal.store_waits if thread is None or w.thread_id in (0, thread.python_id)]
    return mine[0] if mine else None


def own_store_call(stack: Stack) -> bool:
    """The user's own store.get or store.wait, and not the one of a process group being made."""
    return not any("torch/distributed/" in f.file for f in below_user(stack))


def waits_for_a_key(activity: Activity) -> bool:
    """Is it in a store.get or store.wait of the user's own?"""
    return activity.kind == ActivityKind.STORE_WAIT and own_store_call(activity.stack)


def python_op(stack: Stack) -> str:
    """The torch.distributed function nearest to user code."""
    for frame in reversed(below_user(stack)):
        if frame.file.endswith("torch/distributed/distributed_c10d.py"):
            return plain(frame.function)
    return ""
