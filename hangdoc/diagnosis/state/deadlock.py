"""Threads of one process that wait for each other for good. The process alone proves it, without the other ranks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hangdoc.diagnosis.frames.landmarks import is_distributed
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.frames.stacks import is_in, user_stack
from hangdoc.diagnosis.source.locks import Holder, holders, wanted
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.state.nobody_left import never_stopped, unread_child
from hangdoc.diagnosis.state.process import at_rest, is_moving, is_shared_wait, kind_mark
from hangdoc.model.kinds import ActivityKind
from hangdoc.model.process import Frame, Process, Thread

_POOL_WORKER = "/multiprocessing/pool.py"
_TAKE_TASKS = (_POOL_WORKER, "/torch/utils/data/_utils/worker.py")
"""Where the workers of a multiprocessing.Pool (Python 3.11) and of a DataLoader (torch 2.13) take their next task."""
_TIMEOUT_OF_FUTEX = 4
"""Its place in a line of /proc/PID/syscall: the number of the call, then its arguments."""


@dataclass(frozen=True, slots=True)
class Deadlock:
    """Why no thread of the process can go on. With neither field: all its threads wait, or there is only one.

    ``circle``: (the line that waits for a lock, the lock's holder) of each thread, from the main thread on; the last
    holder waits at one of these lines. ``pool``: the lines at which the workers of a thread pool wait for
    tasks of their own pool. Example: thread 1 holds a and waits for b, thread 2 holds b and waits for a → circle of 2.
    """

    circle: tuple[tuple[Frame, Holder], ...] = ()
    pool: tuple[Frame, ...] = ()


def never_goes_on(process: Process, kind: ActivityKind, sources: Sources) -> Deadlock | None:
    """The deadlock in what a rank waits for, by its own threads and children; None if these do not prove one."""
    if kind == ActivityKind.LOCK:
        return deadlock(process, sources)
    proofs: dict[ActivityKind, Callable[[], object]] = {
        ActivityKind.WAITING_FOR_CHILD: lambda: (
            waits_for_own_child(process) or unread_child(process) or has_children_nobody_wakes(process)
        ),
        ActivityKind.WAITING_FOR_WORKER: lambda: has_deadlocked_worker(process, sources),
        ActivityKind.PIPE: lambda: blocked_with_child(process),
        ActivityKind.SHUTTING_DOWN: lambda: never_stopped(process, sources) or waits_at_exit(process, sources),
    }
    return Deadlock() if kind in proofs and proofs[kind]() else None


def deadlock(process: Process, sources: Sources) -> Deadlock | None:
    """The deadlock that keeps the main thread from ever going on; None if the process alone does not prove one."""
    threads = process.last.threads if process.last is not None else ()
    if not threads or is_moving(process):
        return None
    if not _waits_for_a_thread(process, threads[0], sources):
        return Deadlock() if nobody_wakes(process) else None
    circle = _circle(process, threads[0], sources)
    if circle:
        return Deadlock(circle=circle)
    others = [thread for thread in threads[1:] if thread.frames and not _is_probe(thread)]
    if any(_may_call_python(process, thread) for thread in threads if not thread.frames):
        return None
    if not all(_waits_for_a_thread(process, thread, sources) for thread in others):
        return None
    return Deadlock(pool=_pool_of_waiting_workers(threads[0], others))


def waits_at_exit(process: Process, sources: Sources) -> bool:
    """True if a process that is over waits for threads of its own, each of which waits for another thread: none is left
    who could end that.

    Example: the main thread is in ``threading._shutdown()``, and the other one in `job = self.jobs.get()`.
    """
    look = process.last
    if look is None or look.main is None or is_moving(process):
        return False
    if not _is_at(look.main, "threading_file", "joins_threads"):
        return False
    others = [t for t in look.threads if t.tid != look.main.tid and not _is_probe(t)]
    running = [thread for thread in others if thread.frames]
    if not running or any(_may_call_python(process, thread) for thread in others if not thread.frames):
        return False
    # Where the system call could not be read, no timeout of it was seen either.
    return all(thread.syscall and _waits_for_a_thread(process, thread, sources) for thread in running)


def nobody_wakes(process: Process) -> bool:
    """True if the only thread of a process waits, without a timeout, for another thread of it.

    Example: a process was forked after OpenMP had started its threads, and waits for these at the end of a parallel
    loop: a fork has none but the thread that called it. Linux, futex(2): a private futex is woken by threads of the
    process alone.
    """
    threads = process.last.threads if process.last is not None else ()
    if len(threads) != 1 or is_moving(process) or threads[0].state != "S" or is_shared_wait(threads[0]):
        return False
    call = (threads[0].syscall or "").split()
    waits = "futex" in (threads[0].wchan or "") and len(call) > _TIMEOUT_OF_FUTEX
    return waits and threads[0].wakes_in is None and set(call[_TIMEOUT_OF_FUTEX]) <= set("0x")


def has_children_nobody_wakes(process: Process) -> bool:
    """True if each child that is not idle is in such a wait, and no other thread of the process runs user code."""
    threads = process.last.threads[1:] if process.last is not None else ()
    busy = [child for child in process.children if not is_idle_worker(child)]
    own = any(user_stack(thread.frames) for thread in threads)
    return bool(busy) and not own and not is_moving(process) and all(map(nobody_wakes, busy))


def has_deadlocked_worker(process: Process, sources: Sources) -> bool:
    """True if a DataLoader's worker can never go on, and each of the others waits for a task: the rank hands out none
    before it has the batch that it waits for.

    Example: a worker that was forked while a thread of the rank held a lock waits for that lock.
    """
    if is_moving(process) or any(user_stack(t.frames) for t in (process.last.threads[1:] if process.last else ())):
        return False
    workers = [child for child in process.children if child.role == "dataloader-worker"]
    stuck = [worker for worker in workers if deadlock(worker, sources) is not None]
    return bool(stuck) and all(worker in stuck or is_idle_worker(worker) for worker in workers)


def _pool_of_waiting_workers(main: Thread, others: list[Thread]) -> tuple[Frame, ...]:
    """The lines of a pool's workers, if all of them and the main thread wait for a task of the pool; else ().

    Example: two workers of a pool of two are in `future.result()`, as is the main thread → the workers' two lines.
    """
    workers = [thread for thread in others if _is_at(thread, "pool_worker_file", "pool_worker")]
    if not all(_is_at(thread, "future_file", "waits_for_future") for thread in (main, *workers)):
        return ()
    return tuple(where for thread in workers if (where := _where(thread)) is not None)


def _may_call_python(process: Process, thread: Thread) -> bool:
    """True for a native thread that may run a Python callback, which may end the wait."""
    return not thread.name.startswith(names("threads_without_locks", of="native")) and thread.name != process.comm


def waits_for_own_child(process: Process) -> bool:
    """True if the rank waits for a child that itself waits for the rank.

    The child is blocked on a pipe whose other end only the rank has, and no other thread of the rank runs user code.
    While a child still works, what it brings may end the wait; and one worker of a pool waits for work as a matter of
    course, though not all of them.
    """
    threads = process.last.threads[1:] if process.last is not None else ()
    if is_moving(process) or any(user_stack(thread.frames) for thread in threads):
        return False
    if any(is_moving(child) for child in process.children):
        return False
    busy = [child for child in process.children if not is_idle_worker(child)] or process.children
    return any(
        file.target.startswith("pipe:") and file.peers == (process.pid,)
        for child in busy
        for file in child.blocking_files
    )


def blocked_with_child(process: Process) -> bool:
    """True if the rank is blocked on a pipe to a child that is itself blocked on another one, whose other end only the
    rank has: `proc.stdout.readline()`, while the child has filled the pipe of its stderr.

    As of ``waits_for_own_child``, no other thread of the rank may run user code, and no child may move.
    """
    named = {pid for file in process.blocking_files for pid in file.peers} - {process.pid}
    own = {file.target for file in process.blocking_files}
    children = [child for child in process.children if child.pid in named]
    if not children or len(children) < len(named) or not waits_for_own_child(process):
        return False
    return all(
        any(
            f.target.startswith("pipe:") and f.peers == (process.pid,) and f.target not in own for f in c.blocking_files
        )
        for c in children
    )


def is_pool_worker(process: Process) -> bool:
    """True for a process that a multiprocessing.Pool has started."""
    frames = process.last.main.frames if process.last is not None and process.last.main is not None else ()
    return any(frame.file.endswith(_POOL_WORKER) for frame in frames)


def is_idle_worker(process: Process) -> bool:
    """True for a worker of a multiprocessing.Pool or a DataLoader that waits for a task, or its turn to take one."""
    frames = process.last.main.frames if process.last is not None and process.last.main is not None else ()
    below = next((frames[at - 1] for at, f in enumerate(frames) if at and f.file.endswith(_TAKE_TASKS)), None)
    return below is not None and below.file.endswith("/multiprocessing/queues.py")


def _waits_for_a_thread(process: Process, thread: Thread, sources: Sources) -> bool:
    """True if the thread waits, without a timeout, on a Python lock that only another thread of its process can
    release."""
    if thread.state != "S" or thread.wakes_in is not None or is_shared_wait(thread):
        return False
    if "futex" not in (thread.wchan or "futex"):
        return False
    if at_rest(process, thread, thread.frames).kind != ActivityKind.LOCK or any(
        is_distributed(f) for f in thread.frames
    ):
        return False  # what a collective waits for is another process
    return kind_mark(thread.frames) is not None or bool(wanted(_where(thread), sources))


def _where(thread: Thread) -> Frame | None:
    return next(iter(user_stack(thread.frames)), None)


def _circle(process: Process, main: Thread, sources: Sources) -> tuple[tuple[Frame, Holder], ...]:
    """(line that waits, holder of its lock) from the main thread on, until a thread repeats; () if one does not."""
    steps: list[tuple[Frame, Holder]] = []
    seen: list[int] = []
    thread = main
    while thread.tid not in seen:
        where = _where(thread)
        held_by = holders(process, where, sources) if _waits_for_a_thread(process, thread, sources) else []
        if where is None or not held_by:
            return ()
        steps.append((where, held_by[0]))
        seen.append(thread.tid)
        thread = held_by[0].thread
    # The main thread may be outside of the circle itself: then the first steps lead from it to the circle.
    return tuple(steps)


def _is_probe(thread: Thread) -> bool:
    return bool(thread.frames) and thread.frames[-1].file.endswith("/hangdoc_probe_serve.py")


def _is_at(thread: Thread, files: str, functions: str) -> bool:
    """True if the thread is in one of these functions of these files; both are entries of the table of names."""
    return any(is_in(frame, files, functions) for frame in thread.frames)
