"""Native frames are read of one rank for each place of a wait; the others that wait there get them as well."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import replace

from hangdoc.model.process import Stack, Thread
from hangdoc.model.snapshot import JobSnapshot, RankSnapshot


def with_native_frames(job: JobSnapshot) -> JobSnapshot:
    """``job`` with the native frames that were read of one rank put on all that wait at the same Python frame."""
    seen: dict[Hashable, Stack] = {}
    for rank in job.ranks:
        for thread in _threads(rank):
            if thread.native_frames:
                seen.setdefault(_place(thread), thread.native_frames)
    if not seen:
        return job
    return replace(job, ranks=tuple(_with_native_frames(rank, seen) for rank in job.ranks))


def _with_native_frames(rank: RankSnapshot, seen: dict[Hashable, Stack]) -> RankSnapshot:
    process = rank.process
    if process is None or not any(not t.native_frames and _place(t) in seen for t in _threads(rank)):
        return rank
    *before, last = process.looks
    threads = (
        replace(t, native_frames=t.native_frames or seen.get(_place(t), ())) if t.frames else t for t in last.threads
    )
    return replace(rank, process=replace(process, looks=(*before, replace(last, threads=tuple(threads)))))


def _threads(rank: RankSnapshot) -> Iterator[Thread]:
    """The rank's threads whose stacks were read."""
    last = rank.process.last if rank.process is not None else None
    return (thread for thread in (last.threads if last is not None else ()) if thread.frames)


def _place(thread: Thread) -> Hashable:
    """Where a thread waits, and in what: two ranks that agree on it wait for the same kind of thing."""
    innermost = thread.frames[0]
    return innermost.file, innermost.line, innermost.function, thread.state, thread.wchan
