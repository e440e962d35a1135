"""A saved job as two hosts would have shown it, on which equal process ids mean different processes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain

from hangdoc.model.process import Process
from hangdoc.model.snapshot import JobSnapshot


def family(process: Process | None) -> Iterator[Process]:
    if process is not None:
        yield process
        for child in process.children:
            yield from family(child)


def renumbered(process: Process | None, pids: Mapping[int, int]) -> Process | None:
    """The process as it would look if the kernel had handed out other ids."""
    if process is None:
        return None
    return replace(
        process,
        pid=pids.get(process.pid, process.pid),
        ppid=pids.get(process.ppid, process.ppid),
        blocking_files=tuple(
            replace(file, peers=tuple(pids.get(pid, pid) for pid in file.peers)) for file in process.blocking_files
        ),
        children=tuple(found for child in process.children if (found := renumbered(child, pids)) is not None),
    )


def part(job: JobSnapshot, name: str, ranks: set[int], pids: Mapping[int, int]) -> JobSnapshot:
    """What one host would have shown of ``job``, had it run ``ranks``, under other process ids."""
    own = {process.pid for rank in job.ranks if rank.rank in ranks for process in family(rank.process)}
    if 0 in ranks and job.launcher is not None:
        own.add(job.launcher.pid)
    return replace(
        job,
        launcher=renumbered(job.launcher, pids) if 0 in ranks else None,
        ranks=tuple(
            replace(rank, host=name, process=renumbered(rank.process, pids)) for rank in job.ranks if rank.rank in ranks
        ),
        hosts=tuple(
            replace(
                host,
                name=name,
                listening=tuple(replace(p, pid=pids.get(p.pid or 0, p.pid)) for p in host.listening if p.pid in own),
                connections=tuple(
                    replace(c, pid=pids.get(c.pid or 0, c.pid)) for c in host.connections if c.pid in own
                ),
            )
            for host in job.hosts
        ),
        unavailable=tuple(note for note in job.unavailable if note.rank is None or note.rank in ranks),
    )


def on_two_hosts(job: JobSnapshot, first: set[int]) -> tuple[JobSnapshot, JobSnapshot]:
    """The job with the ranks ``first`` on host a and the others on host b, whose pids are those of a, in order."""
    second = {rank.rank for rank in job.ranks} - first
    on_a = [process.pid for rank in job.ranks if rank.rank in first for process in family(rank.process)]
    on_b = [process.pid for rank in job.ranks if rank.rank in second for process in family(rank.process)]
    colliding = dict(zip(on_b, chain(on_a, range(1 << 22, 1 << 23)), strict=False))
    return part(job, "a", first, {}), part(job, "b", second, colliding)
