"""What each rank does now.

What it issued, what completed and what it blocks on are kept apart: the line on which a rank blocks need not be the
line of the call that hangs.
"""

from __future__ import annotations

from dataclasses import replace

from hangdoc.diagnosis.bounds import LISTED
from hangdoc.diagnosis.calls.history import RankProgram, Token, group_label
from hangdoc.diagnosis.calls.streams import Front
from hangdoc.diagnosis.frames.landmarks import Landmark, below_user, number_below_user, plain, words, words_of_thread
from hangdoc.diagnosis.frames.names import names, pattern
from hangdoc.diagnosis.frames.stacks import site_of, user_stack
from hangdoc.diagnosis.state.endings import exit_text, origin
from hangdoc.diagnosis.state.pipeline_schedule import peer_in_schedule
from hangdoc.diagnosis.state.process import (
    DEVICE,
    Wait,
    at_rest,
    blocking_thread,
    descendants,
    helpers_below,
    is_moving,
    is_pasted,
    kind_mark,
)
from hangdoc.model.device_waits import waits_for_device
from hangdoc.model.diagnosis import Activity
from hangdoc.model.journal import Journal, PointToPoint, StoreWait
from hangdoc.model.kinds import MESSAGES, ActivityKind, WaitReason
from hangdoc.model.operations import message_way
from hangdoc.model.process import Frame, Process, Stack, Thread
from hangdoc.model.snapshot import RankSnapshot

UNSEEN = "unseen"
"""``RankSnapshot.identity`` of a rank that may be any process of the job that does not say its rank."""


_DONE_BY_CHILDREN = frozenset({ActivityKind.WAITING_FOR_CHILD, ActivityKind.WAITING_FOR_WORKER, ActivityKind.COMPILING})
_PERHAPS_DONE_BY_CHILDREN = frozenset(
    {ActivityKind.PIPE, ActivityKind.IO, ActivityKind.SLEEPING, ActivityKind.EVENT_LOOP}
)
"""A rank may read its children's results from a pipe, or poll for them; what a DataLoader prefetches is none."""


def describe(rank: RankSnapshot, program: RankProgram | None, front: Front | None = None) -> Activity:
    """The activity of one rank, from both looks and its journal. ``front``: where its device stands.

    Example: py-spy shows `train.py:9` below torch's all_reduce, the journal a pending call #12 → IN_COLLECTIVE,
    'all_reduce  default_pg #12', at train.py:9.
    """
    if rank.identity == UNSEEN:
        return Activity(rank.rank, rank.host, None, ActivityKind.NOT_VISIBLE, "no process says that it is this rank")
    if rank.process is None and rank.exit is None and rank.journal is not None and rank.journal.source == "dump":
        return _from_dump(rank, program, front)
    gone = _gone(rank)
    if gone is not None:
        main = rank.process.last.main if rank.process and rank.process.last else None
        began = origin(rank.exit) if rank.exit else None
        stack = began.stack if began else rank.exit.stack if rank.exit else main.frames if main else ()
        pid = rank.process.pid if rank.process else None
        return Activity(rank.rank, rank.host, pid, gone.kind, gone.text, where=_first(stack), stack=stack)
    assert rank.process is not None  # _gone covers it
    # A rank that has completed all its calls waits for a kernel of its own, which is work.
    # And who ran when its stack was taken, in a call: NCCL's waits do.
    polls_device = (program is None or front is not None) and (
        waits_for_device(rank.process.looks) or is_pasted(rank.process)
    )
    return _of_process(rank, rank.process, program, polls_device)


def _of_process(rank: RankSnapshot, process: Process, program: RankProgram | None, polls_device: bool) -> Activity:
    """The activity of a rank whose process is alive. ``polls_device``: its main thread waits for what its device has
    under way, which may be a call that others are missing from."""
    thread = blocking_thread(process)
    stack = thread.frames if thread else ()
    moving = is_moving(process, polls_device=polls_device)
    doing, token, peer = _what(rank, process, thread, program, moving, polls_device)
    kind = doing.kind
    working = _at_work_for(process, kind, stack)
    if doing.reason == WaitReason.TASK:  # its scheduler never rests
        working = [child for child in working if pattern("runs_task").search(child.comm)]
    moving = moving or any(map(is_moving, working))
    found = Activity(
        rank=rank.rank,
        host=rank.host,
        pid=process.pid,
        kind=kind,
        text=doing.text,
        reason=doing.reason,
        where=_first(stack),
        stack=stack,
        moving=moving,
        peer=peer,
        # The text of an idle event loop already says what its tasks await.
        landmark=None if kind == ActivityKind.EVENT_LOOP else words(stack),
    )
    found = _with_call(found, token) if token is not None else found
    return found if found.where is not None else replace(found, where=_line_of_main(rank, process, kind))


def _on_device(program: RankProgram | None) -> _Doing:
    """The wait of a rank for its device: in the first call there that has not completed, where a journal shows it."""
    call = pending_call(program, ())
    if call is None:
        return Wait(ActivityKind.IN_COLLECTIVE, DEVICE, WaitReason.UNNAMED), None, None
    return Wait(ActivityKind.IN_COLLECTIVE, call_text(call, program)), call, None


def _at_work_for(process: Process, kind: ActivityKind, stack: Stack) -> list[Process]:
    """The processes below this one whose work may be what it waits for: while they move, it is not hung."""
    if kind in _DONE_BY_CHILDREN:
        return descendants(process)
    awaited = kind in _PERHAPS_DONE_BY_CHILDREN or (
        kind == ActivityKind.LOCK
        and (any(f.file.endswith(names("future_file")) for f in below_user(stack)) or _a_thread_awaits_one(process))
    )
    return helpers_below(process) if awaited else []


def _a_thread_awaits_one(process: Process) -> bool:
    """True if another thread of the process, which the main thread may wait for, waits for a child."""
    threads = process.last.threads[1:] if process.last is not None else ()
    marks = (kind_mark(thread.frames) for thread in threads if user_stack(thread.frames))
    return any(mark is not None and mark.kind in _DONE_BY_CHILDREN for mark in marks)


def _with_call(activity: Activity, call: Token) -> Activity:
    """``activity`` in that call; the call's own stack replaces one that could not be read."""
    stack = activity.stack or call.stack
    return replace(
        activity,
        where=activity.where or _first(stack) or call.frame,
        stack=stack,
        op=call.op,
        group=call.group[0],
        members=call.group[1],
        sequence=call.sequence,
        landmark=activity.landmark or words(call.stack),
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
        return Activity(rank.rank, rank.host, None, ActivityKind.NOT_VISIBLE, "at no pending call")
    waiting = Activity(rank.rank, rank.host, None, ActivityKind.IN_COLLECTIVE, call_text(token, program))
    found = _with_call(waiting, token)
    return found if token.stack else replace(found, landmark=words_of_thread(token.thread, token.op))


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
        return Wait(ActivityKind.ABSENT, "missing, no process has this rank")
    last = rank.process.last
    if last is None:
        return None
    if last.state in ("Z", "X", "x"):
        return Wait(ActivityKind.ZOMBIE, "a zombie, ended and not yet reaped by its parent")
    if last.state in ("T", "t"):
        if last.tracer_pid:
            return Wait(ActivityKind.STOPPED, f"held by a debugger (process {last.tracer_pid})")
        return Wait(ActivityKind.STOPPED, f"stopped (state {last.state})")
    if last.state == "D" and all(look.state == "D" for look in rank.process.looks):
        channel = last.main.wchan if last.main else None
        return Wait(ActivityKind.UNINTERRUPTIBLE, "uninterruptible (state D)" + (f" in {channel}" if channel else ""))
    return None


_Doing = tuple[Wait, "Token | None", "int | None"]
"""(what the rank does, the call it waits in, the peer of its message)."""


def _what(
    rank: RankSnapshot,
    process: Process,
    thread: Thread | None,
    program: RankProgram | None,
    moving: bool,
    polls_device: bool,
) -> _Doing:
    """What the rank does, by the surest source that knows: its journal, then its stack, then the kernel."""
    stack = thread.frames if thread else ()
    mark = kind_mark(stack)
    kind = mark.kind if mark else None
    pending = pending_call(program, stack)
    found: _Doing | None = None
    if kind is None:
        found = (
            None
            if _is_beside_messages(rank, process, thread, program, moving)
            else _in_recorded_message(rank, stack, pending)
        )
        found = found or _in_recorded_store_wait(rank, thread)
    elif kind in MESSAGES:
        found = _in_recorded_message(rank, stack, pending)
        if found is None and pending is None:
            found = _in_schedule(thread, mark, moving)
    elif kind == ActivityKind.IN_COLLECTIVE:
        own = pending if pending is not None and not _of_another(pending, process, thread) else None
        found = _in_recorded_message(rank, stack, pending) or _in_collective(thread, program, own, moving, polls_device)
    if found is not None:
        return found
    rest = at_rest(process, thread, stack)
    if polls_device and rest.kind == ActivityKind.COMPUTING:
        return _on_device(program)
    if pending is not None and rest.reason == WaitReason.DESTROY_GROUP and program and program.recording.runs_ahead:
        return _on_device(program)  # it shuts down once its device has done what is under way
    waits = rest.kind in (ActivityKind.LOCK, ActivityKind.NOT_VISIBLE) and thread is not None and thread.state == "S"
    if pending is not None and waits and not _of_another(pending, process, thread):
        return Wait(ActivityKind.IN_COLLECTIVE, call_text(pending, program)), pending, None
    return rest, None, None


def _is_beside_messages(
    rank: RankSnapshot, process: Process, thread: Thread | None, program: RankProgram | None, moving: bool
) -> bool:
    """True if the thread works, sleeps, or is in a call on a file, at a line from which no pending message was issued:
    what isend has left to the background keeps nobody. A wait for a device may run as well.

    Example: rank 2 computes, or sleeps, at line 24, and its isend of line 43 has not been taken → True.
    """
    if thread is None or (program is not None and program.recording.runs_ahead):
        return False
    sleeps = at_rest(process, thread, thread.frames).kind == ActivityKind.SLEEPING
    if not thread.blocking_files and not sleeps and not (moving and thread.state == "R"):
        return False
    here, journal = site_of(thread.frames), rank.journal
    pending = [p for p in journal.point_to_points if not p.completed] if journal is not None else []
    return bool(here) and all(site_of(journal.stack(p.stack))[:1] != here[:1] for p in pending if journal is not None)


def _in_recorded_message(rank: RankSnapshot, stack: Stack, pending: Token | None) -> _Doing | None:
    """The wait for a message of the journal, unless the rank issued its ``pending`` collective after that message."""
    message = pending_p2p(rank, stack)
    if message is None or (pending is not None and message.created_ns < pending.created_ns):
        return None
    waiting, peer = _waiting_for(message)
    return waiting, None, peer


def _in_recorded_store_wait(rank: RankSnapshot, thread: Thread | None) -> _Doing | None:
    """The wait on the store that the journal knows."""
    wait = _store_wait(rank, thread)
    if wait is None:
        return None
    return Wait(ActivityKind.STORE_WAIT, _store_text(wait)), None, None


def _store_text(wait: StoreWait) -> str:
    """The call on the store as PyTorch names it: 'store.wait(done0, done1, done2, …)', 'TCPStore(127.0.0.1, 29500)'."""
    keys = ", ".join((*wait.keys[:LISTED], *(["…"] if len(wait.keys) > LISTED else [])))
    if wait.operation == "connect":
        return f"TCPStore({keys})"
    if wait.operation == "group":
        return f"the set-up of process group {keys}".rstrip()
    return f"store.{wait.operation}({keys})"


def _in_collective(
    thread: Thread | None, program: RankProgram | None, pending: Token | None, moving: bool, polls_device: bool
) -> _Doing | None:
    """The wait of a thread whose stack is in a collective: in its pending call, else as the stack alone shows it.

    None for a thread that works inside of a collective that the journal does not know.
    """
    if pending is not None:
        return Wait(ActivityKind.IN_COLLECTIVE, call_text(pending, program)), pending, None
    if moving or thread is None:
        return None
    op = python_op(thread.frames)
    if message_way(op):
        return Wait(_verb(op), op), None, number_below_user(thread.frames, *names("peer_local"))
    if thread.state == "R" and not polls_device:
        return None
    return Wait(ActivityKind.IN_COLLECTIVE, op or words(thread.frames) or "a collective"), None, None


def _in_schedule(thread: Thread | None, mark: Landmark | None, moving: bool) -> _Doing | None:
    """The wait of a pipeline's schedule for a message, as the stack alone shows it; None for a thread that works."""
    if moving or thread is None or mark is None or mark.kind is None or thread.state == "R":
        return None
    return Wait(mark.kind, "a message of the pipeline"), None, peer_in_schedule(thread.frames)


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
    """The call with its group and number: 'all_reduce  default_pg #1042'."""
    group = program.groups.get(token.group[0]) if program else None
    return f"{token.op}  {group_label(token.group[0], group.description if group else '')} #{token.sequence}"


def pending_call(program: RankProgram | None, stack: Stack) -> Token | None:
    """The pending call that the thread waits in: one issued from its stack, else from its line, else the oldest.

    Of calls that a device executes, the first that has not completed: the job hangs there, wherever the thread is.
    Example: all_reduce from train.py:9 and barrier from train.py:14 are pending, the thread is at train.py:14 → the
    barrier; on a device → the all_reduce.
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
    """True for a store.get or store.wait of the user's own; False for one in the set-up of a process group."""
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
