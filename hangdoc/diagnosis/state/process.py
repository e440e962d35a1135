"""What one process does, from its threads alone: no journal, no rank. Works for ranks and for their children."""

from __future__ import annotations

from dataclasses import dataclass

from hangdoc.diagnosis.frames.landmarks import Landmark, below_user, landmark, plain, serves_another_thread
from hangdoc.diagnosis.frames.names import names, pattern
from hangdoc.diagnosis.frames.native_frames import native_function, native_wait
from hangdoc.diagnosis.frames.stacks import is_in, user_stack
from hangdoc.model.device_waits import shows_device_wait
from hangdoc.model.kinds import MESSAGES, ActivityKind, WaitReason
from hangdoc.model.process import OpenFile, Process, Stack, Thread

_NATIVE_CALL = "blocked in a native call (a lock, a socket or a library)"
SLEEPS = "in time.sleep or a polling loop"
DEVICE = "a call on the device"
"""What a rank waits in whose device has something under way, where no journal shows what."""
_SHARED_LOCK = "waiting for a lock or semaphore that processes share"

_FUTEX_PRIVATE = 128
"""FUTEX_PRIVATE_FLAG of linux/futex.h."""
_CPU_SHARE_THAT_MOVES = 0.05
"""Of one core, in the main thread and those that run in both looks; chosen by hand, above what a wait that polls now
and then costs."""
_CPU_SHARE_OF_A_BUSY_THREAD = 0.5
"""Of one core, in any thread; chosen by hand, above what the probe's own answers cost."""
_SHORTEST_GAP_SECONDS = 0.05
"""Between two looks, to compute shares with; chosen by hand, so that a tick of the clock (10 ms) is no full core."""
_BYTES_THAT_MOVE = 4096
"""Between two looks: one page of memory; chosen by hand, because a line of a log is less."""
_GIL_INTERVAL_SECONDS = 0.005
"""After which a thread that waits for the GIL asks for it again (sys.getswitchinterval(), CPython 3.8 to 3.14)."""
_WAKE_UPS_THAT_MOVE = 5
"""Between two looks; chosen by hand, above what a worker that sleeps shows."""


def is_moving(process: Process, *, polls_device: bool = False) -> bool:
    """True if CPU time, I/O bytes or the main thread's stack changed between the looks.

    Only the main thread's CPU time counts in full: the probe's own answers cost some in another thread.
    ``polls_device``: the main thread is known to wait for its device. Such a wait uses a whole core, and so may native
    threads beside it (NCCL's); neither counts then.
    """
    if len(process.looks) < 2:
        return False
    first, last = process.looks[0], process.looks[-1]
    seconds = max(last.at - first.at, _SHORTEST_GAP_SECONDS)
    if not polls_device and first.main and last.main and _main_moves(first.main, last.main, seconds):
        return True
    before = {t.tid: t for t in (first.threads[1:] if polls_device else first.threads)}
    held = gil_holder(process)
    threads = [t for t in last.threads if t.tid in before and not (held is not None and _asks_for_gil(t))]
    if polls_device:
        threads = [t for t in threads if t.python_id is not None]
    if any(_thread_moves(before[t.tid], t, seconds) for t in threads):
        return True
    counts = ((first.read_bytes, last.read_bytes), (first.write_bytes, last.write_bytes))
    return any(then is not None and now is not None and now - then > _BYTES_THAT_MOVE for then, now in counts)


def _main_moves(then: Thread, now: Thread, seconds: float) -> bool:
    """True if the main thread ran, or is elsewhere in its program, ``seconds`` later.

    One that is ready to run in both looks and gets little of a core works, on a machine with too much to do.
    """
    ran = now.cpu - then.cpu
    if ran > _CPU_SHARE_THAT_MOVES * seconds or (ran > 0 and then.state == now.state == "R"):
        return True
    if then.frames is now.frames:  # as of hosts whose ranks share their stacks
        return False
    return bool(then.frames and now.frames) and _shape(then.frames) != _shape(now.frames)


def _thread_moves(then: Thread, now: Thread, seconds: float) -> bool:
    """True if a thread ran for much of the time, or one that moves data was woken up again and again.

    A thread of the program's that runs in both looks counts with less: on a busy machine it gets a small share.
    """
    ran = now.cpu - then.cpu
    if ran > _CPU_SHARE_OF_A_BUSY_THREAD * seconds:
        return True
    if then.state == now.state == "R" and user_stack(now.frames) and ran > _CPU_SHARE_THAT_MOVES * seconds:
        return True
    wake_ups = now.voluntary_switches - then.voluntary_switches
    return now.name in names("threads_that_move_data", of="native") and wake_ups > _WAKE_UPS_THAT_MOVE


def _asks_for_gil(thread: Thread) -> bool:
    """True if it waits for the GIL, for which it wakes up 200 times a second: also a library's thread, which drops a
    Python object (gloo's, torch 2.13)."""
    if thread.python_id is None or thread.owns_gil is not False or thread.wakes_in is None:
        return False
    return thread.state == "S" and thread.wakes_in <= _GIL_INTERVAL_SECONDS


def _shape(stack: Stack) -> list[tuple[str, int]]:
    """(function, line) of each user frame, with 0 for the innermost line: a polling loop alternates between its lines
    without getting any further."""
    users = user_stack(stack)
    return [(f.function, 0 if users and f is users[0] else f.line) for f in (users or stack)]


def descendants(process: Process) -> list[Process]:
    """The processes below this one."""
    found: list[Process] = []
    queue = list(process.children)
    while queue:
        child = queue.pop()
        found.append(child)
        queue.extend(child.children)
    return found


def helpers_below(process: Process) -> list[Process]:
    """The processes below this one that may do what it waits for: a DataLoader's worker only prefetches."""
    return [child for child in descendants(process) if child.role != "dataloader-worker"]


_LEFT_TO_OTHER_THREADS = frozenset({ActivityKind.LOCK, ActivityKind.SHUTTING_DOWN, ActivityKind.EVENT_LOOP})
"""What the main thread does while another thread may do the rank's work."""


def blocking_thread(process: Process) -> Thread | None:
    """The thread that decides what the rank does: the main thread, or the one it waits for that communicates.

    If the main thread only serves a library's loop (Ray's workers), the user's code runs in another thread; in
    backward() it may run in one of autograd's. Example: the main thread waits in join() for a thread that is in
    all_reduce → that thread.
    """
    last = process.last
    main = last.main if last else None
    return (_at_work_instead(main, last.threads[1:]) or main) if last is not None and main is not None else None


def _at_work_instead(main: Thread, threads: tuple[Thread, ...]) -> Thread | None:
    """The one of the other threads that does the rank's work while the main thread waits for it or serves a loop."""
    # One ordered list of rules: backward's threads, then one that communicates, then one in user code.
    mark = kind_mark(main.frames)
    serves = bool(main.frames) and not user_stack(main.frames)
    if any(plain(frame.function) in names("runs_backward") for frame in below_user(main.frames)):
        servants = [t for t in threads if t.frames and serves_another_thread(t.name)]
        # In a pasted stack, the threads of native code have no names, and numbers in their place.
        unnamed = [t for t in threads if t.frames and t.name in (str(t.tid), hex(t.tid)) and not _started_by_python(t)]
        return next((t for t in (*servants, *unnamed) if _communicates(t.frames)), next(iter(servants), None))
    others: list[Thread] = []
    if serves or (mark is not None and mark.kind in _LEFT_TO_OTHER_THREADS):
        others = [t for t in threads if t.frames and (_communicates(t.frames) or _asks_store_for(main, t))]
    if serves and mark is None and len(others) != 1:
        others = [t for t in threads if user_stack(t.frames)]
    return others[0] if len(others) == 1 else None


def _started_by_python(thread: Thread) -> bool:
    return is_in(thread.frames[-1], "threading_file", "thread_begins")


def _communicates(stack: Stack) -> bool:
    mark = kind_mark(stack)
    return mark is not None and mark.kind in (ActivityKind.IN_COLLECTIVE, ActivityKind.STORE_WAIT)


def _asks_store_for(main: Thread, thread: Thread) -> bool:
    """True for a pool's thread whose task waits for a key of the store, while the main thread is in its event loop or
    waits for a future. A thread of the program's own may wait for a key, such as one to stop at, beside all else."""
    awaits = any(is_in(f, "future_file", "waits_for_future") for f in main.frames)
    mark = kind_mark(main.frames)
    if not awaits and (mark is None or mark.kind != ActivityKind.EVENT_LOOP):
        return False
    if not any(is_in(f, "pool_worker_file", "pool_worker") for f in thread.frames):
        return False
    native = native_wait(thread.native_frames)
    return is_in(thread.frames[0], "probe_file", "store_getter") or (
        native is not None and native[0] == ActivityKind.STORE_WAIT
    )


# What a library waits for says more than how it waits: compilers run in processes, and pools and loaders pass results
# through queues. So these kinds replace the kind of the innermost frame if a frame further out has them.
_FINER = {
    ActivityKind.WAITING_FOR_CHILD: (ActivityKind.COMPILING,),
    ActivityKind.LOCK: (
        ActivityKind.DEBUGGER,
        ActivityKind.COMPILING,
        ActivityKind.WAITING_FOR_WORKER,
        ActivityKind.WAITING_FOR_CHILD,
        ActivityKind.REMOTE_CALL,
        ActivityKind.IN_COLLECTIVE,
    ),
    ActivityKind.PIPE: (
        ActivityKind.COMPILING,
        ActivityKind.WAITING_FOR_WORKER,
        ActivityKind.WAITING_FOR_CHILD,
        ActivityKind.IN_COLLECTIVE,
    ),
}


def kind_mark(stack: Stack) -> Landmark | None:
    """The landmark that decides the kind: the innermost one below user code, unless one further out is finer.

    Without any user frame the whole stack is searched. Example: a queue's get() inside of a DataLoader →
    the DataLoader's landmark, WAITING_FOR_WORKER.
    """
    marks = [mark for frame in below_user(stack) if (mark := landmark(frame)) is not None and mark.kind]
    first = marks[0].kind if marks else None
    for better in _FINER.get(first, ()) if first is not None else ():
        found = next((mark for mark in marks if mark.kind == better), None)
        if found is not None:
            return found
    return marks[0] if marks else None


def calls_of_threads(process: Process | None) -> list[Stack]:
    """The stacks of the process's threads that are in collectives."""
    threads = process.last.threads if process is not None and process.last is not None else ()
    marks = [(thread.frames, kind_mark(thread.frames)) for thread in threads]
    return [stack for stack, mark in marks if mark is not None and mark.kind == ActivityKind.IN_COLLECTIVE]


def mark_with_words(stack: Stack, kind: ActivityKind) -> Landmark | None:
    """The landmark of that kind with words that is nearest to user code: 'new_group …' rather than its helper."""
    marks = (landmark(frame) for frame in reversed(below_user(stack)))
    return next((mark for mark in marks if mark is not None and mark.kind == kind and mark.words), None)


@dataclass(frozen=True, slots=True)
class Wait:
    """What a thread that does not run is blocked in. ``text`` follows 'is': 'waiting for a file lock'."""

    kind: ActivityKind
    text: str
    reason: WaitReason | None = None


def thread_files(process: Process, thread: Thread) -> tuple[OpenFile, ...]:
    """What the thread's system call works on."""
    main = process.last.main if process.last is not None else None
    return process.blocking_files if main is not None and thread.tid == main.tid else thread.blocking_files


def outside(process: Process, thread: Thread | None) -> Wait | None:
    """Waits that the kernel names: sleep, pipe, lock file, terminal, socket, child."""
    if thread is None or thread.state == "R":
        return None
    channel = thread.wchan or ""
    for file in thread_files(process, thread):
        found = _on_file(file, channel)
        if found is not None:
            return found
    if channel.startswith(names("sleep", of="kernel")):
        return Wait(ActivityKind.SLEEPING, SLEEPS)
    if channel.startswith(names("signal", of="kernel")):
        return Wait(ActivityKind.IO, "waiting for a signal", WaitReason.SIGNAL)
    if channel.startswith(names("file_lock", of="kernel")):
        return Wait(ActivityKind.FILE_LOCK, "waiting for a file lock")
    if channel.startswith((*names("pipe", of="kernel"), *names("pipe_open", of="kernel"))):
        return Wait(ActivityKind.PIPE, "waiting for the other end of a pipe")
    return None


def is_terminal(file: OpenFile) -> bool:
    """True if its name is that of a terminal. To ask the device itself would mean to open it."""
    return pattern("terminal", of="kernel").match(file.target) is not None


def _on_file(file: OpenFile, channel: str) -> Wait | None:
    if file.operation in names("wait_for_child", of="kernel"):
        return Wait(ActivityKind.WAITING_FOR_CHILD, f"waiting for {file.target}")
    if file.operation in names("lock_file", of="kernel") or channel.startswith(names("file_lock", of="kernel")):
        return Wait(ActivityKind.FILE_LOCK, f"waiting for the lock on {file.target}")
    if file.fd == 0 and file.operation == "read":
        return Wait(ActivityKind.TERMINAL, f"reading its standard input ({file.target})")
    if is_terminal(file):
        return Wait(ActivityKind.TERMINAL, f"reading the terminal ({file.target})")
    if file.target.startswith("pipe:"):
        return Wait(ActivityKind.PIPE, f"waiting on a pipe ({file.operation} {file.target})")
    if file.operation in names("open_file", of="kernel") and channel.startswith(names("pipe_open", of="kernel")):
        return Wait(ActivityKind.PIPE, f"opening {file.target} (no process has its other end open)")
    if file.operation in names("wait_for_many", of="kernel"):
        return None
    what = "a unix socket" if file.target.startswith("socket:unix ") else file.target
    return Wait(ActivityKind.IO, f"waiting in {file.operation or 'a system call'} on {what}")


def gil_holder(process: Process) -> Thread | None:
    """A thread that owns the GIL in both looks without running Python."""
    if len(process.looks) < 2:
        return None
    first = {t.tid for t in process.looks[0].threads if t.owns_gil and not t.active}
    return next((t for t in process.looks[-1].threads if t.owns_gil and not t.active and t.tid in first), None)


def is_pasted(process: Process) -> bool:
    """True for a process that only a pasted stack shows: one look, and nothing of the kernel's."""
    return process.last is not None and not process.last.state


def at_rest(process: Process, thread: Thread | None, stack: Stack) -> Wait:
    """What the thread does. One step for each source, the surest first: library frames, the kernel, native frames."""
    blocked = outside(process, thread)
    known = _in_library(stack) or _holding_gil(process, thread, blocked) or blocked
    if known is not None:
        return known
    if thread is not None and is_pasted(process) and (stack or thread.native_frames):
        return _as_pasted(thread)
    if (thread is not None and thread.state == "R") or is_moving(process):
        return Wait(ActivityKind.COMPUTING, "running Python or native code")
    if thread is None or not stack:
        return Wait(ActivityKind.NOT_VISIBLE, "its stack could not be read")
    return _in_native_code(thread)


_COMMUNICATED = MESSAGES | {ActivityKind.IN_COLLECTIVE}


def _in_library(stack: Stack) -> Wait | None:
    """The wait that a library's frames name; None for a collective or a message, of which a journal knows more."""
    mark = kind_mark(stack)
    if mark is None or mark.kind is None or mark.kind in _COMMUNICATED:
        return None
    worded = mark_with_words(stack, mark.kind)
    return Wait(mark.kind, worded.words, worded.reason) if worded is not None else Wait(mark.kind, mark.kind.value)


def _holding_gil(process: Process, thread: Thread | None, blocked: Wait | None) -> Wait | None:
    """The wait of a process in which a native call holds the GIL. ``blocked``: what ``thread`` itself is blocked in."""
    holder = gil_holder(process)
    if holder is None or holder.state == "R":
        return None
    inside = ""
    if blocked is not None and thread is not None and thread.tid == holder.tid:
        inside = " (it sleeps)" if blocked.kind == ActivityKind.SLEEPING else f" ({blocked.text})"
    elif function := native_function(holder.native_frames):
        inside = f" ({function}())"
    return Wait(ActivityKind.GIL_HELD, f"in a native call that holds the GIL{inside}")


def _as_pasted(thread: Thread) -> Wait:
    """What a thread does that one look shows at a line which names no wait: it may run, or wait for its device."""
    if shows_device_wait(thread.native_frames):
        return Wait(ActivityKind.IN_COLLECTIVE, DEVICE, WaitReason.UNNAMED)
    if thread.state == "S" or native_wait(thread.native_frames) is not None:
        return _in_native_code(thread)
    function = native_function(thread.native_frames)
    if function:
        return Wait(ActivityKind.NOT_VISIBLE, f"in {function}()", WaitReason.UNKNOWN)
    if thread.state == "R":
        runs = "Python code" if thread.owns_gil else "native code or waiting for its device"
        return Wait(ActivityKind.NOT_VISIBLE, f"running {runs}", WaitReason.UNKNOWN)
    return Wait(ActivityKind.NOT_VISIBLE, "running or waiting", WaitReason.UNKNOWN)


def _in_native_code(thread: Thread) -> Wait:
    """The wait of a thread in native code that no Python frame and no system call names."""
    native = native_wait(thread.native_frames)
    if native is not None:
        return Wait(*native)
    if is_shared_wait(thread):
        return Wait(ActivityKind.LOCK, _SHARED_LOCK, WaitReason.SHARED_LOCK)
    return Wait(ActivityKind.LOCK, _NATIVE_CALL, WaitReason.UNKNOWN)


def is_shared_wait(thread: Thread) -> bool:
    """True if the thread waits in a futex that several processes may share.

    multiprocessing's locks are named semaphores, which wait without FUTEX_PRIVATE_FLAG; a lock of threads sets it
    (glibc 2.36, seen in /proc/PID/syscall).
    """
    call = (thread.syscall or "").split()
    if "futex" not in (thread.wchan or "") or len(call) < 3:
        return False
    try:
        return not int(call[2], 16) & _FUTEX_PRIVATE
    except ValueError:
        return False
