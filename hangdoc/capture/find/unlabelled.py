"""Jobs whose ranks show nothing in their environment: spawned by a program, by Ray, or by no known launcher."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hangdoc.capture.find import rendezvous
from hangdoc.capture.find.job import Job, common_parent, unlabelled_targets
from hangdoc.capture.find.job_ranks import spawned_targets
from hangdoc.capture.find.launchers import Carrier
from hangdoc.capture.find.process_table import ProcessTable
from hangdoc.capture.find.rendezvous import Meeting
from hangdoc.capture.find.spawned import Spawned
from hangdoc.capture.read.sockets import Sockets
from hangdoc.model.snapshot import Unavailable

_RAY = "ray::"
_MAX_STRANGERS = 1024
"""Processes with torch and without a job whose sockets are read. Judgement."""
_NUMBERED_BY_AGE = Unavailable(
    "ranks",
    "nothing shows which process is which rank: they are numbered in the order they started",
    "next time, start the job with `hangdoc watch`",
)


def spawned_jobs(
    table: ProcessTable, found: Sequence[Carrier], families: Sequence[Spawned]
) -> tuple[list[Carrier], list[Job]]:
    """(carriers left, jobs of spawned families). A carrier that spawned the real ranks is left out: it is no rank."""
    left = list(found)
    jobs = []
    for family in families:
        above = {family.parent, *table.ancestors(family.parent)}
        node = next((carrier for carrier in left if carrier.top in above), None)
        if node is not None and not family.by_torch:
            continue
        if node is not None:
            left.remove(node)
        jobs.append(_spawned_job(table, family, node))
    return left, jobs


def jobs_of_stores(table: ProcessTable, strangers: Sequence[int]) -> list[Job]:
    """One job for every store that processes with torch are connected to. ``strangers`` belong to no job so far."""
    pids = [pid for pid in sorted(strangers, key=lambda pid: (table[pid].started, pid)) if table.has_torch(pid)]
    if not pids:
        return []
    sockets = table.sockets(pids[:_MAX_STRANGERS])
    jobs = []
    left = set(pids)
    for meeting in rendezvous.meetings(sockets, left):
        members = (meeting.clients | {meeting.host}) & left
        if members:
            left -= members
            jobs.append(_job_of_store(table, [pid for pid in pids if pid in members], meeting, sockets))
    return jobs


def agents_job(table: ProcessTable, agent: int) -> Job:
    """The job of a torchrun whose ranks are not there yet, or whose environment we may not read.

    The agent starts its ranks one after the other, so on the first node their order of age is their order of ranks.
    """
    if table[agent].environment is not None:
        return Job("torchrun", agent, ())
    ranks = [pid for pid in table.children.get(agent, ()) if table[pid].alive and table[pid].environment is None]
    note = Unavailable("ranks", "their environment may not be read: they are numbered in the order they started")
    targets = unlabelled_targets(table, {pid: rank for rank, pid in enumerate(ranks)}, "order")
    return Job("torchrun", agent, targets, frozenset(ranks), (note,))


def lone_process(table: ProcessTable, pid: int) -> Job | None:
    """A process with torch that no rule fits, as a job of its own; None if neither it nor one above it has torch."""
    family = [pid, *table.ancestors(pid)]
    pythons = [other for other in family if other in table and table.is_python(other) and table.has_torch(other)]
    if not pythons:
        return None
    first = pythons[-1]
    rank, world = _from_locals(table, [first]).get(first, (0, None))
    targets = unlabelled_targets(table, {first: rank}, "locals" if world else "launcher", world=world, complete=False)
    return Job("python", None, targets, frozenset({first}))


def _spawned_job(table: ProcessTable, family: Spawned, node: Carrier | None) -> Job:
    targets = spawned_targets(table, family, node)
    launcher = "spawn" if family.by_torch else "multiprocessing"
    inside = frozenset(family.ranks)
    if any("multiprocessing.forkserver" in word for word in table[family.parent].argv[:6]):
        return Job(launcher, table[family.parent].ppid, targets, inside | {family.parent})
    return Job(launcher, family.parent, targets, inside)


def _job_of_store(table: ProcessTable, pids: Sequence[int], meeting: Meeting, sockets: Sockets) -> Job:
    """The job of ``pids``, the processes that are connected to one store, the oldest first."""
    ranks = _ranks_in_store(pids, meeting, sockets)
    believed = _from_locals(table, [pid for pid in pids if pid not in ranks])
    ranks |= {pid: rank for pid, (rank, _) in believed.items() if rank not in ranks.values()}
    known = len(ranks) == len(pids)
    ranks = _numbered(ranks, pids)
    worlds = [world for _, world in believed.values()]
    world = max([len(pids), *worlds, *(rank + 1 for rank in ranks.values())])
    local = meeting.address.startswith("127.") or meeting.address == "::1"
    targets = unlabelled_targets(table, ranks, "store" if known else "order", world=world, complete=local)
    ray = any(table[pid].comm.startswith(_RAY) for pid in pids)
    root = None if ray else common_parent(table, [table[pid].ppid for pid in pids])
    return Job("ray" if ray else "python", root, targets, frozenset(pids), () if known else (_NUMBERED_BY_AGE,))


def _ranks_in_store(pids: Sequence[int], meeting: Meeting, sockets: Sockets) -> dict[int, int]:
    """Pid → rank of those of ``pids`` that the store names; empty if it cannot be read."""
    answer = rendezvous.read(meeting, sockets, pids[0])
    return {} if isinstance(answer, Unavailable) else {pid: rank for pid, rank in answer[1].items() if pid in pids}


def _numbered(ranks: Mapping[int, int], pids: Sequence[int]) -> dict[int, int]:
    """Pid → rank: ``ranks``, and for the other ``pids`` the free numbers. {8: 0} and [7, 8] → {8: 0, 7: 1}."""
    free = (number for number in range(len(pids)) if number not in ranks.values())
    return {**ranks, **{pid: next(free) for pid in pids if pid not in ranks}}


def _from_locals(table: ProcessTable, pids: Sequence[int]) -> dict[int, tuple[int, int]]:
    """Pid → (rank, world size) of processes that are joining their job now."""
    found: dict[int, tuple[int, int]] = {}
    for pid, threads in table.stacks(pids).items():
        if isinstance(threads, Unavailable):
            continue
        for thread in threads:
            seen = rendezvous.rank_in_locals(thread.frames)
            if seen is not None:
                found.setdefault(pid, seen)
    return found
