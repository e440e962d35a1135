"""Ranks that ended before an attach: how they ended, as far as their launcher still shows it."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import replace

from hangdoc.capture.find.job import Job
from hangdoc.capture.find.process_table import ProcessTable
from hangdoc.capture.find.promised import absent
from hangdoc.capture.find.rendezvous import rank_in_locals
from hangdoc.capture.find.target import RankTarget
from hangdoc.capture.read.exits import ExitWatch
from hangdoc.model.process import ProcessExit
from hangdoc.model.snapshot import JobSnapshot, RankSnapshot

_STARTING_SECONDS = 3.0
"""A launcher may still be starting ranks this long after its youngest one. Judgement."""
_IMPORT_SECONDS = 0.5
"""CPU time that importing torch costs at least (1.8 s, measured): a child that used less was no rank."""


def how_they_ended(
    table: ProcessTable, job: Job, joined: Collection[int] = ()
) -> tuple[tuple[RankTarget, ...], dict[int, ProcessExit]]:
    """(``job``'s targets, with the pids of dead ranks that are not reaped yet; rank → how it ended).

    ``joined``: ranks that have published a port in the store and no longer listen on it. A missing rank that is neither
    among them nor a zombie counts as never started.
    """
    missing = [target.rank for target in job.targets if target.pid is None]
    if not missing:
        return job.targets, {}
    targets, unreaped = with_unreaped(table, job)
    ended = {rank: ProcessExit(at=time.time()) for rank in missing if rank in joined}
    if _has_reaped(table, job):
        # torchrun ends the others as soon as one fails.
        status = 0 if job.launcher in ("torchrun", "accelerate") else None
        ended |= {rank: ProcessExit(at=time.time(), status=status) for rank in missing}
    return targets, ended | unreaped


def with_unreaped(table: ProcessTable, job: Job) -> tuple[tuple[RankTarget, ...], dict[int, ProcessExit]]:
    """(``job``'s targets, a missing one with its pid where the launcher has not reaped it; rank → how it ended)."""
    missing = {target.rank for target in job.targets if target.pid is None}
    zombies = {rank: pid for rank, pid in _zombies(table, job).items() if rank in missing}
    targets = tuple(
        replace(target, pid=zombies[target.rank], identity="launcher") if target.rank in zombies else target
        for target in job.targets
    )
    return targets, _statuses(zombies)


def with_believed_ranks(snapshot: JobSnapshot) -> JobSnapshot:
    """``snapshot`` with the ranks that its processes wait for in init_process_group and that no launcher promised."""
    worlds = [
        seen[1]
        for rank in snapshot.ranks
        if rank.process is not None and rank.process.last is not None
        for thread in rank.process.last.threads
        if (seen := rank_in_locals(thread.frames)) is not None
    ]
    world = max(worlds, default=0)
    known = {rank.rank for rank in snapshot.ranks}
    if world <= max(snapshot.world_size or 0, len(known)):
        return snapshot
    believers = [
        RankTarget(rank.rank, rank.process.pid, rank.identity, world, rank.local_rank, environment=rank.environment)
        for rank in snapshot.ranks
        if rank.process is not None
    ]
    host = snapshot.ranks[0].host
    more = [
        RankSnapshot(rank=target.rank, host=host, identity=target.identity, world_size=world)
        for target in absent(believers, host)
        if target.rank not in known
    ]
    ranks = sorted([*snapshot.ranks, *more], key=lambda rank: rank.rank)
    return replace(snapshot, ranks=tuple(ranks), world_size=world)


def _zombies(table: ProcessTable, job: Job) -> dict[int, int]:
    """Rank → pid of dead children of the launcher. Launchers start their ranks in order, so the oldest child is rank 0;
    empty if that contradicts a living rank.

    Children 10, 11 (a zombie) and 12 of the launcher of three ranks, where 10 is rank 0 and 12 is rank 2: {1: 11}.
    """
    root = _launcher(job)
    if root is None:
        return {}
    rank_of = {target.pid: target.rank for target in job.targets if target.pid is not None}
    living = {_child_of(table, root, pid): rank for pid, rank in rank_of.items() if pid != root}
    dead = _dead_children(table, root, is_rank=root in rank_of)
    children = [pid for pid in table.children.get(root, ()) if pid in living or pid in dead]
    expected = [target.rank for target in job.targets if target.pid != root]
    if len(children) != len(expected):
        return {}
    matched = dict(zip(children, expected, strict=True))
    if any(matched.get(pid) != rank for pid, rank in living.items() if pid is not None):
        return {}
    return {rank: pid for pid, rank in matched.items() if pid in dead}


def _dead_children(table: ProcessTable, root: int, *, is_rank: bool) -> set[int]:
    """The unreaped children of a launcher that can have been ranks; one that is a rank has other children, too."""
    dead = {pid for pid in table.children.get(root, ()) if not table[pid].alive}
    return {pid for pid in dead if table[pid].cpu >= _IMPORT_SECONDS} if is_rank else dead


def _launcher(job: Job) -> int | None:
    """The process that started the ranks. A single rank may be that process: Lightning's main script is rank 0."""
    return job.pids[0] if job.root is None and len(job.pids) == 1 else job.root


def _child_of(table: ProcessTable, root: int, pid: int) -> int | None:
    """The launcher's own child that is, or carries, the process."""
    return next((other for other in (pid, *table.ancestors(pid)) if table[other].ppid == root), None)


def _has_reaped(table: ProcessTable, job: Job) -> bool:
    """True if the launcher has reaped a child that can have been a rank."""
    root = _launcher(job)
    if root is None or root not in table or not job.pids:
        return False
    if table[root].children_cpu >= _IMPORT_SECONDS and (root == job.root or not _loads_data(table, root)):
        return True
    youngest = max(table[pid].started for pid in job.pids)
    now = time.clock_gettime(time.CLOCK_BOOTTIME)
    return job.launcher in ("torchrun", "accelerate") and now - youngest > _STARTING_SECONDS


def _loads_data(table: ProcessTable, pid: int) -> bool:
    """True if the rank has living children: a child that ended may then have been a DataLoader worker."""
    return any(table[child].alive for child in table.children.get(pid, ()))


def _statuses(zombies: Mapping[int, int]) -> dict[int, ProcessExit]:
    watch = ExitWatch()
    try:
        for pid in zombies.values():
            watch.add(pid)
        ended = watch.poll()
    finally:
        watch.close()
    return {rank: ended[pid] for rank, pid in zombies.items() if pid in ended}
