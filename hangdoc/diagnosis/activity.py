"""What is each rank doing? Issued, completed and blocked-on kept apart: the line a rank blocks on need not be
the line of the call that hangs."""

from __future__ import annotations

from hangdoc.diagnosis.landmarks import Landmark, below_user, landmark, plain, words
from hangdoc.diagnosis.sequences import RankProgram, Token, group_label, site_of, user_stack
from hangdoc.model.diagnosis import Activity
from hangdoc.model.journal import PointToPoint, StoreWait
from hangdoc.model.process import Frame, Process, Stack, Thread
from hangdoc.model.snapshot import RankSnapshot

UNSEEN = "unseen"
"""Identity of a rank that a group names and that left no trace in the snapshot."""
GONE = frozenset({"exited", "zombie", "absent"})
HELD = frozenset({"stopped", "debugger-attached", "uninterruptible"})

# System calls by number where /proc does not name the wait channel (x86-64; the names are wchan's).
_SLEEP_CALLS = ("35 ", "230 ")
_SLEEP_CHANNELS = ("hrtimer_nanosleep", "do_nanosleep", "common_nsleep")
_PIPE_CHANNELS = ("anon_pipe_read", "anon_pipe_write", "pipe_read", "pipe_write", "pipe_wait")
_OPEN_CHANNELS = ("wait_for_partner", "fifo_open")
_LOCK_CHANNELS = ("flock_lock", "fcntl_setlk", "posix_lock", "locks_lock_inode_wait")

_CPU_SHARE_THAT_MOVES = 0.05
_BYTES_THAT_MOVE = 4096
_WAKE_UPS_THAT_MOVE = 5
# The innermost frames decide; deeper ones belong to whoever called.
_P2P = frozenset({"send", "recv", "isend", "irecv", "batch_isend_irecv", "recv_object_list", "send_object_list"})


def describe(rank: RankSnapshot, program: RankProgram | None) -> Activity:
    """The activity of one rank, from both looks and its journal."""
    if rank.identity == UNSEEN:
        return Activity(rank.rank, rank.host, None, "not-visible", "nothing is known of this rank")
    if rank.process is None and rank.exit is None and rank.journal is not None and rank.journal.source == "dump":
        return _from_dump(rank, program)
    gone = _gone(rank)
    if gone is not None:
        kind, text = gone
        main = rank.process.last.main if rank.process and rank.process.last else None
        stack = rank.exit.stack if rank.exit else main.frames if main else ()
        pid = rank.process.pid if rank.process else None
        return Activity(rank.rank, rank.host, pid, kind, text, where=_first(stack), stack=stack)
    process = rank.process
    assert process is not None  # _gone covers it
    thread = blocking_thread(process)
    stack = thread.frames if thread else ()
    moving = is_moving(process)
    kind, text, token, peer = _what(rank, process, thread, stack, program, moving)
    if not stack and token is not None:
        stack = token.stack
    return Activity(
        rank=rank.rank,
        host=rank.host,
        pid=process.pid,
        kind=kind,
        text=text,
        where=_first(stack) or (token.frame if token else None),
        stack=stack,
        moving=moving,
        op=token.op if token else None,
        group=token.group[0] if token else None,
        members=token.group[1] if token else (),
        sequence=token.sequence if token else None,
        peer=peer,
        landmark=words(stack) or (words(token.stack) if token else None),
    )


def _from_dump(rank: RankSnapshot, program: RankProgram | None) -> Activity:
    """A dump file is all there is: the oldest call that had not completed when the job wrote it."""
    token = pending_call(program, ())
    if token is None:
        return Activity(rank.rank, rank.host, None, "not-visible", "no call pending in its dump")
    return Activity(
        rank=rank.rank,
        host=rank.host,
        pid=None,
        kind="in-collective",
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


def _gone(rank: RankSnapshot) -> tuple[str, str] | None:
    if rank.exit is not None:
        return "exited", exit_text(rank)
    if rank.process is None:
        return "absent", "no process carries this rank"
    last = rank.process.last
    if last is None:
        return None
    if last.state in ("Z", "X", "x"):
        return "zombie", "ended, not yet reaped by its parent"
    if last.state in ("T", "t"):
        if last.tracer_pid:
            return "debugger", f"held by a debugger (process {last.tracer_pid})"
        return "stopped", f"stopped (state {last.state})"
    if last.state == "D" and all(look.state == "D" for look in rank.process.looks):
        channel = last.main.wchan if last.main else None
        return "uninterruptible", "uninterruptible (state D)" + (f" in {channel}" if channel else "")
    return None


def exit_text(rank: RankSnapshot) -> str:
    """How the process ended, in words."""
    end = rank.exit
    if end is None:
        return "ended"
    if end.signal:
        return f"killed by signal {end.signal}"
    if end.exception:
        return f"ended with {end.exception}"
    if end.status is not None:
        return f"exited with status {end.status}"
    return "ended, status unknown"


def is_moving(process: Process) -> bool:
    """Did CPU time, I/O bytes or the main thread's stack change between the looks?

    Only the main thread's CPU time counts in full: the probe's own answers cost some in another thread.
    """
    if len(process.looks) < 2:
        return False
    first, last = process.looks[0], process.looks[-1]
    gap = max(last.at - first.at, 0.05)
    main_before, main_now = first.main, last.main
    if main_before and main_now:
        if main_now.cpu - main_before.cpu > _CPU_SHARE_THAT_MOVES * gap:
            return True
        if main_before.frames and main_now.frames and _shape(main_before.frames) != _shape(main_now.frames):
            return True
    before = {t.tid: t for t in first.threads}
    for thread in last.threads:
        then = before.get(thread.tid, thread)
        if thread.cpu - then.cpu > gap / 2:
            return True
        # A collective that moves data wakes gloo's workers all the time; in a hang they sleep through. Its event
        # loop, gloo_tcp_loop, wakes a hundred times a second whatever happens (torch 2.13).
        if (
            thread.name == "pt_gloo_runloop"
            and thread.voluntary_switches - then.voluntary_switches > _WAKE_UPS_THAT_MOVE
        ):
            return True
    for now, earlier in ((last.read_bytes, first.read_bytes), (last.write_bytes, first.write_bytes)):
        if now is not None and earlier is not None and now - earlier > _BYTES_THAT_MOVE:
            return True
    return False


def _shape(stack: Stack) -> list[tuple[str, int]]:
    """Where a thread is, but for the line in the innermost user function: a polling loop goes from its test to
    its sleep and back without getting anywhere."""
    users = user_stack(stack)
    return [(f.function, 0 if users and f is users[0] else f.line) for f in (users or stack)]


def blocking_thread(process: Process) -> Thread | None:
    """The thread that decides what the rank does: the main thread, or the one it waits for that communicates."""
    last = process.last
    main = last.main if last else None
    if last is None or main is None:
        return None
    mark = _kind_mark(main.frames)
    if mark is not None and mark.kind in ("lock", "shutting-down"):
        busy = [t for t in last.threads[1:] if t.frames and _communicates(t.frames)]
        if len(busy) == 1:
            return busy[0]
    return main


def _communicates(stack: Stack) -> bool:
    mark = _kind_mark(stack)
    return mark is not None and mark.kind in ("in-collective", "store-wait")


def _kind_mark(stack: Stack) -> Landmark | None:
    """The innermost library frame below user code that tells a kind. Whole-stack only where no user frame is."""
    for frame in below_user(stack):
        mark = landmark(frame)
        if mark is not None and mark.kind:
            return mark
    return None


def _kind_words(stack: Stack, kind: str) -> str:
    """The words of the landmark of that kind nearest to user code: 'new_group …' rather than its helper."""
    for frame in reversed(below_user(stack)):
        mark = landmark(frame)
        if mark is not None and mark.kind == kind and mark.words:
            return mark.words
    return ""


def _what(
    rank: RankSnapshot,
    process: Process,
    thread: Thread | None,
    stack: Stack,
    program: RankProgram | None,
    moving: bool,
) -> tuple[str, str, Token | None, int | None]:
    mark = _kind_mark(stack)
    kind = mark.kind if mark else ""
    pending = pending_call(program, stack)
    if kind in ("", "in-collective"):
        pointed = pending_p2p(rank, stack)
        if pointed is not None and (pending is None or pointed.created_ns >= pending.created_ns):
            verb = "send" if pointed.op in ("send", "isend") else "recv"
            if pointed.op == "monitored_barrier":
                return "in-collective", "monitored_barrier", None, None
            arrow = "to" if verb == "send" else "from"
            peer = pointed.peer if pointed.peer >= 0 else None
            who = f"rank {peer}" if peer is not None else "any rank"
            return verb, f"{pointed.op} {arrow} {who}", None, peer
        wait = _store_wait(rank, thread)
        if wait is not None and not kind:
            return "store-wait", f"{wait.operation} of {', '.join(wait.keys[:3]) or 'a key'}", None, None
    if kind == "in-collective" and not (moving and pending is None):
        if pending is not None:
            return kind, call_text(pending, program), pending, None
        op = _python_op(stack)
        if op in _P2P:
            return ("send" if "send" in op else "recv"), op, None, _peer_from_locals(stack)
        if thread is not None and thread.state != "R":
            return kind, op or (mark.words if mark else ""), None, None
    if kind and kind != "in-collective":
        return kind, _kind_words(stack, kind) or kind, None, None
    blocked = _blocked_outside(process, thread)
    if blocked is not None and not (pending is not None and blocked[0] == "lock"):
        return blocked[0], blocked[1], None, None
    if moving or (thread is not None and thread.state == "R"):
        return "computing", "running Python or native code", None, None
    if pending is not None and thread is not None and thread.state == "S":
        return "in-collective", call_text(pending, program), pending, None
    if _gil_holder(process):
        return "gil-held", "a native call holds the GIL", None, None
    if thread is None or not stack:
        return "not-visible", "its stack could not be read", None, None
    return "lock", "blocked in a native call (lock, socket or library)", None, None


def call_text(token: Token, program: RankProgram | None) -> str:
    """'all_reduce  default_pg #1042'."""
    group = program.groups.get(token.group[0]) if program else None
    return f"{token.op}  {group_label(token.group[0], group.description if group else '')} #{token.sequence}"


def pending_call(program: RankProgram | None, stack: Stack) -> Token | None:
    """The uncompleted call that the thread waits in: the one issued from the line it stands at, else the oldest."""
    if program is None:
        return None
    pending = [t for t in program.tokens if t.pending]
    if not pending:
        return None
    here = site_of(stack)
    return next((t for t in pending if t.site == here), None) or next(
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


def _python_op(stack: Stack) -> str:
    """The torch.distributed function nearest to user code."""
    for frame in reversed(below_user(stack)):
        if frame.file.endswith("torch/distributed/distributed_c10d.py"):
            return plain(frame.function)
    return ""


def _peer_from_locals(stack: Stack) -> int | None:
    for frame in below_user(stack):
        for local in frame.locals:
            if local.name in ("dst", "src", "group_dst", "group_src") and local.value.lstrip("-").isdigit():
                return int(local.value)
    return None


def _blocked_outside(process: Process, thread: Thread | None) -> tuple[str, str] | None:
    """Waits that the kernel names: sleep, pipe, lock file, terminal, socket."""
    if thread is None or thread.state == "R":
        return None
    channel, call = thread.wchan or "", thread.syscall or ""
    if channel.startswith(_SLEEP_CHANNELS) or call.startswith(_SLEEP_CALLS):
        return "sleeping", "in time.sleep or a polling loop"
    for file in process.blocking_files:
        if file.target.startswith("/dev/pts/") or file.target.startswith("/dev/tty"):
            return "terminal", f"reading the terminal ({file.target})"
        if file.target.startswith("pipe:") or channel.startswith(_PIPE_CHANNELS):
            return "pipe", f"waiting on a pipe ({file.target})"
        if file.target.startswith("socket:"):
            continue
        kind = "file-lock" if channel.startswith(_LOCK_CHANNELS) else "io"
        return kind, f"waiting on {file.target}"
    if channel.startswith(_LOCK_CHANNELS):
        return "file-lock", "waiting for a file lock"
    if channel.startswith((*_PIPE_CHANNELS, *_OPEN_CHANNELS)):
        return "pipe", "waiting for the other end of a pipe"
    return None


def _gil_holder(process: Process) -> bool:
    """A thread that owns the GIL in both looks without running Python."""
    if len(process.looks) < 2:
        return False
    holders = [{t.tid for t in look.threads if t.owns_gil and not t.active} for look in process.looks]
    return bool(holders[0] & holders[-1])
