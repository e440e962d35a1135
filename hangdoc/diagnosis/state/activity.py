"""What each rank does now.

What it issued, what completed and what it blocks on are kept apart: the line on which a rank blocks need not be the
line of the call that hangs.
"""

from __future__ import annotations

from dataclasses import replace

from hangdoc.diagnosis.calls.history import RankProgram, Token, group_label
from hangdoc.diagnosis.calls.streams import Front
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
"""``RankSnapshot.identity`` of a rank that may be any process of the job that does not say its rank."""

_DONE_BY_CHILDREN = frozenset({ActivityKind.WAITING_FOR_CHILD, ActivityKind.WAITING_FOR_WORKER, ActivityKind.COMPILING})


def describe(rank: RankSnapshot, program: RankProgram | None, front: Front | None = None) -> Activity:
    """The activity of one rank, from both looks and its journal. ``front``: where its device stands.

    Example: py-spy shows `train.py:9` below torch's all_reduce, the journal a pending call #12 → IN_COLLECTIVE,
    'all_reduce  default_pg #12', at train.py:9.
    """
    if rank.identity == UNSEEN:
        return Activity(rank.rank, rank.host, None, ActivityKind.NOT_VISIBLE, "nothing is known of this rank")
    if rank.process is None and rank.exit is None and rank.journal is not None and rank.journal.source == "dump":
        return _from_dump(rank, program, front)
    gone = _gone(rank)
    if gone is not None:
        main = rank.process.last.main if rank.process and rank.process.last else None
        stack = rank.exit.stack if rank.exit else main.frames if main else ()
        pid = rank.process.pid if rank.process else None
        return Activity(rank.rank, rank.host, pid, gone.kind, gone.text, where=_first(stack), stack=stack)
    assert rank.process is not None  # _gone covers it
    return _of_process(rank, rank.process, program)


def _of_process(rank: RankSnapshot, process: Process, program: RankProgram | None) -> Activity:
    """The activity of a rank whose process is alive."""
    thread = blocking_thread(process)
    stack = thread.frames if thread else ()
    moving = is_moving(process)
    doing, token, peer = _what(rank, process, thread, stack, program, moving)
    kind = doing.kind
    if kind in _DONE_BY_CHILDREN:
        moving = moving or any(is_moving(child) for child in descendants(process))
    if not stack and token is not None:
        stack = token.stack
    group, members = token.group if token else (None, ())
    return Activity(
        rank=rank.rank,
        host=rank.host,
        pid=process.pid,
        kind=kind,
        text=doing.text,
        reason=doing.reason,
        where=_first(stack) or (token.frame if token else None) or _line_of_main(rank, process, kind),
        stack=stack,
        moving=moving,
        op=token.op if token else None,
        group=group,
        members=members,
        sequence=token.sequence if token else None,
        peer=peer,
        # The text of an idle event loop already says what its tasks await.
        landmark=None if kind == ActivityKind.EVENT_LOOP else words(stack) or (words(token.stack) if token else None),
    )


def _line_of_main(rank: RankSnapshot, process: Process, kind: ActivityKind) -> Frame | None:
    """The main thread's user line: a library's thread works for it. Of a rank that shuts down, where it failed."""
    main = process.last.main if process.last else None
    failed_at = rank.journal.failed_at if rank.journal is not None and kind == ActivityKind.SHUTTING_DOWN else ()
    return _first(main.frames if main else ()) or _first(failed_at)


def _from_dump(rank: RankSnapshot, program: RankProgram | None, front: Front | None) -> Activity:
    """The activity of a rank that only a dump file shows: the oldest call that was pending when the dump was made."""
    if front is not None and front.messages and rank.journal is not None:
        return _in_message_of_dump(rank, rank.journal, front.messages[0])
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


def _in_message_of_dump(rank: RankSnapshot, journal: Journal, message: PointToPoint) -> Activity:
    """The activity of a rank whose dump shows a message as the first thing that has not completed."""
    waiting, peer = _waiting_for(message)
    stack = journal.stack(message.stack)
    return Activity(
        rank=rank.rank,
        host=rank.host,
        pid=None,
        kind=waiting.kind,
        text=waiting.text,
        where=_first(stack),
        stack=stack,
        op=message.op,
        peer=peer,
        landmark=words(stack),
    )


def _first(stack: Stack) -> Frame | None:
    """The innermost user frame."""
    frames = user_stack(stack)
    return frames[0] if frames else None


def _gone(rank: RankSnapshot) -> Wait | None:
    """What the rank is if it cannot run: ended, absent, zombie, stopped or uninterruptible; else None."""
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
    """(what the rank does, the call it waits in, the peer of its message).

    One function in spite of its branches: it is the order of the sources, the journal, then the stack, then the kernel.
    """
    mark = kind_mark(stack)
    kind = mark.kind if mark else None
    pending = pending_call(program, stack)
    if kind in (None, ActivityKind.IN_COLLECTIVE):
        message = pending_p2p(rank, stack)
        if message is not None and (pending is None or message.created_ns >= pending.created_ns):
            waiting, peer = _waiting_for(message)
            return waiting, None, peer
        wait = _store_wait(rank, thread)
        if wait is not None and not kind:
            text = f"{wait.operation} of {', '.join(wait.keys[:3]) or 'a key'}"
            return Wait(ActivityKind.STORE_WAIT, text), None, None
    if kind == ActivityKind.IN_COLLECTIVE and pending is not None:
        return Wait(kind, call_text(pending, program)), pending, None
    if kind == ActivityKind.IN_COLLECTIVE and not moving:
        op = python_op(stack)
        if message_way(op):
            return Wait(_verb(op), op), None, number_below_user(stack, *names("peer_local"))
        if thread is not None and thread.state != "R":
            return Wait(kind, op or words(stack) or "a collective"), None, None
    rest = at_rest(process, thread, stack)
    waits = rest.kind in (ActivityKind.LOCK, ActivityKind.NOT_VISIBLE) and thread is not None and thread.state == "S"
    if pending is not None and waits and not _of_another(pending, process, thread):
        return Wait(ActivityKind.IN_COLLECTIVE, call_text(pending, program)), pending, None
    return rest, None, None


def _verb(op: str) -> ActivityKind:
    """SEND or RECV, of an operation that passes a message. Any other counts as RECV."""
    return ActivityKind.SEND if message_way(op) == "send" else ActivityKind.RECV


def _waiting_for(message: PointToPoint) -> tuple[Wait, int | None]:
    """(the wait for this message, its peer). Example: a recv from 2 → 'recv from rank 2', 2."""
    if message.op == "monitored_barrier":
        return Wait(ActivityKind.IN_COLLECTIVE, "monitored_barrier"), None
    verb = _verb(message.op)
    arrow = "to" if verb == ActivityKind.SEND else "from"
    peer = message.peer if message.peer >= 0 else None
    who = f"rank {peer}" if peer is not None else "any rank"
    return Wait(verb, f"{message.op} {arrow} {who}"), peer


def in_message(activity: Activity, message: PointToPoint, journal: Journal | None) -> Activity:
    """``activity`` as a wait for ``message``; unchanged if it is one already."""
    verb = _verb(message.op)
    if (activity.kind, activity.peer) == (verb, message.peer) or journal is None:
        return activity
    text = f"{message.op} {'to' if verb == ActivityKind.SEND else 'from'} rank {message.peer}"
    return replace(activity, kind=verb, text=text, peer=message.peer)


def _of_another(call: Token, process: Process, thread: Thread | None) -> bool:
    """True if another thread issued the call and is in a collective now: then this thread does not wait in it."""
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
    """The pending call that the thread waits in: one issued from its stack, else from its line, else the oldest.

    Of calls that a device executes, the first that has not completed: the job hangs there, wherever the thread stands.
    """
    if program is None or not program.recording.pending:
        return None
    here = site_of(stack)
    if not here or program.recording.runs_ahead:
        # On a device it is the first: the thread may stand at a later call, the device does not.
        return program.token(program.recording.pending[0])
    pending = program.pending
    return next((t for t in pending if here and t.site[: len(here)] == here), None) or next(
        (t for t in pending if here and t.site and t.site[0][:2] == here[0][:2]), pending[0]
    )


def pending_p2p(rank: RankSnapshot, stack: Stack) -> PointToPoint | None:
    """The pending send or receive that the thread waits in: one issued from its stack, else the oldest."""
    if rank.journal is None:
        return None
    pending = [p for p in rank.journal.point_to_points if not p.completed]
    if not pending:
        return None
    here = site_of(stack)
    return next((p for p in pending if site_of(rank.journal.stack(p.stack)) == here), pending[0])


def _store_wait(rank: RankSnapshot, thread: Thread | None) -> StoreWait | None:
    """The wait on the store that this thread is in."""
    if rank.journal is None or not rank.journal.store_waits:
        return None
    mine = [w for w in rank.journal.store_waits if thread is None or w.thread_id in (0, thread.python_id)]
    return mine[0] if mine else None


def own_store_call(stack: Stack) -> bool:
    """True for the user's own store.get or store.wait; False for the one inside of a process group's set-up."""
    return not any("torch/distributed/" in f.file for f in below_user(stack))


def waits_for_a_key(activity: Activity) -> bool:
    """True if the rank is in a store.get or store.wait of the user's own."""
    return activity.kind == ActivityKind.STORE_WAIT and own_store_call(activity.stack)


def python_op(stack: Stack) -> str:
    """The torch.distributed function nearest to user code."""
    for frame in reversed(below_user(stack)):
        if frame.file.endswith("torch/distributed/distributed_c10d.py"):
            return plain(frame.function)
    return ""
