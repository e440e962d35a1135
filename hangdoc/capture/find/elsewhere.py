"""Find the ranks of a watched job that do not run below the watched command: another launcher started them.

Used only when a job has stalled or ended with ranks missing. hangdoc only looks at these processes and never signals
them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from hangdoc.capture.find.ended_ranks import with_unreaped
from hangdoc.capture.find.job import Job
from hangdoc.capture.find.jobs import Jobs
from hangdoc.capture.find.joined import ELSEWHERE, living_elsewhere, read_store
from hangdoc.capture.find.process_table import ProcessTable, read_table
from hangdoc.capture.find.target import RankTarget
from hangdoc.model.launch import is_loopback, meets_on_loopback, on_one_host
from hangdoc.model.process import ProcessExit
from hangdoc.model.store import RendezvousStore

_LARGEST_WORLD = 100_000
"""As in ``promised``: no larger world is believed."""
_SHARED = frozenset({"MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "TORCHELASTIC_RUN_ID", "PMIX_NAMESPACE"})
_SHARED |= {"SLURM_JOB_ID", "SLURM_STEP_ID"}


@dataclass(frozen=True, slots=True)
class WholeJob:
    """The job as far as this host shows it. ``exits``, by rank: the ranks that have published a port on which no
    process listens any more."""

    targets: tuple[RankTarget, ...]
    exits: Mapping[int, ProcessExit] = field(default_factory=dict)
    store: RendezvousStore | None = None


def whole_job(targets: Sequence[RankTarget], ended: frozenset[int] = frozenset(), root: int | None = None) -> WholeJob:
    """``targets``, which a watch knows, and the ranks of its job that others started.

    ``ended``: pids of dead ranks. ``root``: the watched command.
    """
    seen = {target.rank for target in targets if target.pid is not None}
    world = max((target.world_size or 0 for target in targets), default=0)
    if not seen or world > _LARGEST_WORLD:
        return WholeJob(tuple(targets))
    if len(seen) >= world:
        return WholeJob(tuple(targets), store=_foreign_store(targets, ended, root))
    table = read_table()
    living = _living(table, targets, ended)
    if not living:
        return WholeJob(tuple(_marked_where_they_live(table, targets)))
    found = _with_ranks_of_this_host(table, targets, living)
    if all(target.pid is not None for target in found.targets):
        return found
    return _after_the_store(table, found, living, root)


def _foreign_store(targets: Sequence[RankTarget], ended: frozenset[int], root: int | None) -> RendezvousStore | None:
    """The store of a job whose rank 0, which should have served it, has ended, if another process serves it."""
    if not any(target.rank == 0 and target.pid in ended for target in targets):
        return None
    table = read_table()
    store = read_store(table, Job("watched", root, tuple(_living(table, targets, ended)))).store
    return store if store is not None and store.foreign is not None else None


def _living(table: ProcessTable, targets: Sequence[RankTarget], ended: frozenset[int]) -> list[RankTarget]:
    return [
        target
        for target in targets
        if target.pid is not None and target.pid in table and target.pid not in ended and table[target.pid].alive
    ]


def _with_ranks_of_this_host(
    table: ProcessTable, targets: Sequence[RankTarget], living: Sequence[RankTarget]
) -> WholeJob:
    """``targets``, with the ranks that another launcher started here and those that died without being reaped."""
    witness = living[0].pid
    assert witness is not None
    job = Jobs(table, near=witness).of(witness)
    seen = {target.rank for target in targets if target.pid is not None}
    known = {target.rank: target for target in targets}
    if job is not None:
        known |= {target.rank: target for target in _others(table, job, living) if target.rank not in seen}
    every = tuple(known[rank] for rank in sorted(known))
    if job is None or all(target.pid is not None for target in every):
        return WholeJob(every)
    # They died between two searches of the watch, and their launcher has not reaped them.
    return WholeJob(*with_unreaped(table, replace(job, targets=every)))


def _others(table: ProcessTable, job: Job, living: Sequence[RankTarget]) -> list[RankTarget]:
    """The job's ranks outside of the watched tree, of the same user and readable, if all agree on who is who."""
    witness = living[0]
    assert witness.pid is not None
    ranks = {target.pid: target.rank for target in job.targets}
    # Ranks guessed from the age of the processes prove nothing.
    if any(ranks.get(target.pid) != target.rank for target in living):
        return []
    own = {target.pid for target in living}
    user = table[witness.pid].user
    return [
        target
        for target in job.targets
        if target.pid is not None
        and target.pid not in own
        and target.identity != "order"
        and table[target.pid].user == user
        and table[target.pid].environment is not None
    ]


def _after_the_store(table: ProcessTable, found: WholeJob, living: Sequence[RankTarget], root: int | None) -> WholeJob:
    """``found`` with what the job's store says of ranks without a process: whether their published ports are in use."""
    present = tuple(target for target in found.targets if target.pid is None or target.pid in table)
    store = read_store(table, Job("watched", root, present)).store
    if store is None:
        return found
    variables = [dict(target.environment) for target in living]
    here = is_loopback(store.address) or any(meets_on_loopback(env) or on_one_host(env) for env in variables)
    missing = {target.rank for target in found.targets if target.pid is None}
    silent = {rank: ProcessExit(at=time.time()) for rank in (missing & set(store.silent) if here else ())}
    return WholeJob(living_elsewhere(found.targets, store, silent), {**silent, **found.exits}, store)


def _marked_where_they_live(table: ProcessTable, targets: Sequence[RankTarget]) -> list[RankTarget]:
    """``targets`` of a command whose ranks have all ended; those that live under another launcher get ``ELSEWHERE``."""
    all_shared = [_shared_by(target) for target in targets]
    shared = [
        own for own in all_shared if own.get("MASTER_ADDR") or own.get("PMIX_NAMESPACE") or own.get("SLURM_JOB_ID")
    ]
    alive = {
        target.rank
        for job in (Jobs(table, near=os.getpid()).all if shared else ())
        for target in job.targets
        if target.pid is not None and _shared_by(target) in shared
    }
    return [
        replace(target, identity=ELSEWHERE) if target.pid is None and target.rank in alive else target
        for target in targets
    ]


def _shared_by(target: RankTarget) -> dict[str, str]:
    return {name: value for name, value in target.environment if name in _SHARED}
