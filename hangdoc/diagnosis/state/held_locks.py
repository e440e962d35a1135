"""A lock that one thread of a rank holds during a collective while its main thread waits for it.

The main thread then never issues the calls that the other ranks need before they can issue that collective.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hangdoc.diagnosis.calls.history import RankProgram, Token
from hangdoc.diagnosis.frames.landmarks import below_user
from hangdoc.diagnosis.frames.names import pattern
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.source.locks import held, held_since, holders, one_owner, polls_for_lock, wanted
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.state.process import is_shared_wait, kind_mark
from hangdoc.model.diagnosis import Activity
from hangdoc.model.kinds import ActivityKind, WaitReason
from hangdoc.model.process import Frame, Local, Process, Thread
from hangdoc.model.snapshot import RankSnapshot


@dataclass(frozen=True, slots=True)
class HeldLock:
    """The thread ``holder`` holds the lock ``name`` (as the source has it) since ``frame``, during ``call``."""

    name: str
    holder: str
    frame: Frame
    call: Token


def held_lock(process: Process, activity: Activity, program: RankProgram, sources: Sources) -> HeldLock | None:
    """The lock that the main thread waits for while another thread holds it in a collective; None if there is none.

    The two lines must lock the same name; for an attribute of ``self``, in the same class. Example: the main thread
    waits at `with lock:`, a thread entered `with lock:` and waits in all_reduce → that lock, that thread.
    """
    for holder in holders(process, activity.where, sources):
        thread = holder.thread
        mark = kind_mark(thread.frames)
        call = next((t for t in program.pending if t.thread_id and t.thread_id == thread.python_id), None)
        if mark is not None and mark.kind == ActivityKind.IN_COLLECTIVE and call is not None:
            return HeldLock(holder.name, thread.name, holder.frame, call)
    return None


def holds_for_all(rank: Process, activity: Activity, others: dict[int, Process], sources: Sources) -> frozenset[int]:
    """The ranks whose main thread holds the lock between processes (multiprocessing's, or a Manager's) that this rank
    waits for."""
    main = rank.last.main if rank.last is not None else None
    names = wanted(activity.where, sources)
    if main is None or activity.where is None or not names or not _waits_for_shared_lock(main):
        return frozenset()
    where = activity.where
    return frozenset(
        number
        for number, process in others.items()
        if process.last is not None
        and process.last.main is not None
        and not _waits_for_shared_lock(process.last.main)
        and any(
            name in names and one_owner(name, frame, where) for name, frame in held(process.last.main.frames, sources)
        )
    )


def holds_entered(rank: Process, activity: Activity, others: dict[int, Process], sources: Sources) -> frozenset[int]:
    """The ranks in the body of a `with` at whose head this rank tries again and again to take a lock file."""
    main = rank.last.main if rank.last is not None else None
    if main is None or activity.kind != ActivityKind.SLEEPING or not polls_for_lock(main.frames, sources):
        return frozenset()
    mine = user_stack(main.frames)
    mains = {n: p.last.main.frames for n, p in others.items() if p.last is not None and p.last.main is not None}
    return frozenset(
        number
        for number, stack in mains.items()
        if any(held_since(frame, other, sources) for frame in mine for other in user_stack(stack))
    )


def _waits_for_shared_lock(thread: Thread) -> bool:
    """True if the thread waits for a lock between processes: in the kernel, or for the answer of a Manager."""
    mark = kind_mark(thread.frames)
    return is_shared_wait(thread) or (mark is not None and mark.reason == WaitReason.SHARED_LOCK)


def holds_database(activity: Activity, others: dict[int, Process], sources: Sources) -> frozenset[int]:
    """The ranks that hold a lock on a file, if this one sleeps in a call on a database: it retries to get a lock."""
    line = sources.line(activity.where.file, activity.where.line) if activity.where is not None else None
    if activity.kind != ActivityKind.SLEEPING or line is None or not pattern("database_call").search(line):
        return frozenset()
    return frozenset(rank for rank, process in others.items() if process.locked_files)


def holds_named(rank: RankSnapshot, activity: Activity, others: Mapping[int, RankSnapshot]) -> frozenset[int]:
    """The ranks that hold a lock on a file which this one, polling for a lock file without an end, names in a local.

    Example: filelock polls in `lock.acquire()`, its lock file is locked by the process of rank 0 → {0}.
    """
    if activity.kind != ActivityKind.FILE_LOCK or rank.process is None or rank.process.blocking_files:
        return frozenset()
    if any(_is_deadline(local) for frame in below_user(activity.stack) for local in frame.locals):
        return frozenset()  # it gives up, and may go on without the lock
    pids = {pid for file in rank.process.named_locks for pid in file.peers}
    return frozenset(
        number
        for number, other in others.items()
        if other.process is not None and other.host == rank.host and other.process.pid in pids
    )


def _is_deadline(local: Local) -> bool:
    """True for `timeout = 30.0`; a negative one is none."""
    return local.name == "timeout" and local.value.replace(".", "", 1).isdecimal()
