"""Threads of one process that wait for each other for good: no other rank is needed to see that it will not move."""

from __future__ import annotations

from dataclasses import dataclass

from hangdoc.diagnosis.frames.landmarks import is_distributed, plain
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.source.guards import Sources
from hangdoc.diagnosis.source.locks import Holder, holders, wanted
from hangdoc.diagnosis.state.process import at_rest, is_moving, is_shared_wait, kind_mark
from hangdoc.model.kinds import ActivityKind
from hangdoc.model.process import Frame, Process, Thread


@dataclass(frozen=True, slots=True)
class Deadlock:
    """``circle``: locks, each with the line that waits for it and its holder, from the main thread's on; the last
    one's holder is the first one's waiter. ``pool``: where the workers of a thread pool wait for tasks of their own
    pool instead. Neither: all threads of the process wait for each other, or there is no other."""

    circle: tuple[tuple[Frame, Holder], ...] = ()
    pool: tuple[Frame, ...] = ()


def deadlock(process: Process, sources: Sources) -> Deadlock | None:
    """What keeps the main thread from ever going on, as far as the process itself proves it."""
    threads = process.last.threads if process.last is not None else ()
    if not threads or is_moving(process) or not _waits_for_a_thread(process, threads[0], sources):
        return None
    circle = _circle(process, threads[0], sources)
    if circle:
        return Deadlock(circle=circle)
    pythons = [thread for thread in threads[1:] if thread.frames and not _is_probe(thread)]
    if any(_may_call_python(process, thread) for thread in threads if not thread.frames):
        return None
    if not all(_waits_for_a_thread(process, thread, sources) for thread in pythons):
        return None
    workers = [thread for thread in pythons if _is_at(thread, "pool_worker_file", "pool_worker")]
    if (
        workers
        and _is_at(threads[0], "future_file", "waits_for_future")
        and all(_is_at(thread, "future_file", "waits_for_future") for thread in workers)
    ):
        return Deadlock(pool=tuple(where for thread in workers if (where := _where(thread)) is not None))
    return Deadlock()


def _may_call_python(process: Process, thread: Thread) -> bool:
    """Is it a thread of some library's, which may run a callback that ends the wait?"""
    return not thread.name.startswith(names("threads_without_locks", of="native")) and thread.name != process.comm


def waits_for_own_child(process: Process) -> bool:
    """Does the rank wait for a child that waits on a pipe of which nobody but the rank has the other end, and has the
    rank no other thread that could see to it?"""
    threads = process.last.threads[1:] if process.last is not None else ()
    if is_moving(process) or any(user_stack(thread.frames) for thread in threads):
        return False
    return any(
        file.target.startswith("pipe:") and file.peers == (process.pid,)
        for child in process.children
        if not is_moving(child)
        for file in child.blocking_files
    )


def _waits_for_a_thread(process: Process, thread: Thread, sources: Sources) -> bool:
    """Untimed, on a lock of Python's that no other process can have: only a thread of its own can end that."""
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
    # The main thread may wait outside of the circle that it found; told is the way from it.
    return tuple(steps)


def _is_probe(thread: Thread) -> bool:
    return bool(thread.frames) and thread.frames[-1].file.endswith("/hangdoc_probe_serve.py")


def _is_at(thread: Thread, files: str, functions: str) -> bool:
    """Is the thread in one of these functions of these files, entries of the table of names?"""
    return any(f.file.endswith(names(files)) and plain(f.function) in names(functions) for f in thread.frames)
