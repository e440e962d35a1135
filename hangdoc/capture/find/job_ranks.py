"""The ranks of one job, from the processes that show them: `watch` and `attach` both ask here.

Which processes these are the two find out in different ways. A watched tree is one job, so `watch` takes every rank
below its command (``ranks``); two jobs of a machine must never become one, so `attach` sorts all processes by their
launchers first (``jobs``). Sorted that way, a watched job whose ranks were given different addresses would fall apart
as soon as one of them is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from hangdoc.capture.find.job import unlabelled_targets
from hangdoc.capture.find.launchers import Carrier
from hangdoc.capture.find.process_table import ProcessTable
from hangdoc.capture.find.promised import absent, one_per_rank
from hangdoc.capture.find.spawned import Spawned, find_spawned
from hangdoc.capture.find.target import RankTarget, host_name, target_of
from hangdoc.capture.read.probe_client import ProbeCounters


def targets_of(
    table: ProcessTable,
    carried: Sequence[Carrier],
    socket_of: Callable[[int], Path | None],
    *,
    answers: Mapping[int, ProbeCounters] | None = None,
    known: Sequence[RankTarget] = (),
    deep: Collection[int] = (),
) -> list[RankTarget]:
    """One living process for each rank of a job: from the probes first, from the variables of ``carried`` second.

    ``answers``: of the probes, by pid. ``known``: ranks that an earlier search read from the stacks; they stay where
    nothing else shows them. ``deep``: processes into whose children's stacks to look (py-spy) if ranks are missing.
    """
    # One step for each source of ranks, the surest first; each step fills what the steps before it left open.
    answers = answers or {}
    found = _from_probes(table, answers)
    registered = {target.pid for target in found}
    oldest_first = sorted(carried, key=lambda carrier: (table[carrier.top].started, carrier.top))
    # What wraps a rank may be readable where the rank itself is not (sudo).
    found += [
        target_of(carrier, table[carrier.pid].variables or table[carrier.top].variables)
        for carrier in oldest_first
        if carrier.pid not in registered
    ]
    if not found and deep:
        families = [family for family in find_spawned(table, deep) if family.by_torch]
        found = [target for family in families for target in spawned_targets(table, family)]
    if known or deep:
        missing = {target.rank for target in absent([target for target in found if target.pid is not None], "")}
        found += [target for target in known if target.identity == "locals" and target.rank in missing]
        found += _before_their_store(table, missing, found) if deep and missing else []
    host = host_name()
    parents = parents_of(table, carried, found)
    found = [replace(target, parent=parents.get(target.pid) if target.pid is not None else None) for target in found]
    return [
        replace(target, host=host, socket=socket_of(target.pid) if target.pid is not None else None)
        for target in one_per_rank(found)
    ]


def parents_of(table: ProcessTable, carried: Sequence[Carrier], targets: Sequence[RankTarget]) -> dict[int, int]:
    """Pid of each rank → the process that started it, or that started the shell or wrapper around it."""
    started = {carrier.pid: carrier.parent for carrier in carried}
    pids = [target.pid for target in targets if target.pid is not None]
    return {pid: started[pid] if pid in started else table[pid].ppid for pid in pids}


def spawned_targets(table: ProcessTable, family: Spawned, node: Carrier | None = None) -> tuple[RankTarget, ...]:
    """The ranks that one process started by multiprocessing, and those that it must have started and that are gone.

    ``node``: that process is itself what a launcher started, one for each host: rank 1 of 2 with four children has
    ranks 4 to 7 of 8.
    """
    count = max(family.ranks.values()) + 1
    nodes = (node.world_size or 1) if node is not None else 1
    first = node.rank * count if node is not None else 0
    ranks = {pid: first + rank for pid, rank in family.ranks.items()}
    return unlabelled_targets(table, ranks, "locals", world=count * nodes, complete=nodes == 1)


def _from_probes(table: ProcessTable, answers: Mapping[int, ProbeCounters]) -> list[RankTarget]:
    return [
        RankTarget(
            rank=answer.rank,
            pid=pid,
            identity="probe",
            world_size=answer.world_size,
            local_rank=answer.local_rank,
            restart=answer.restart or 0,
            environment=tuple(sorted(table[pid].variables.items())),
        )
        for pid, answer in answers.items()
        if answer.rank is not None and not _runs_again(table, pid, answer.rank, answers)
    ]


def _runs_again(table: ProcessTable, pid: int, rank: int, answers: Mapping[int, ProbeCounters]) -> bool:
    """A helper that runs its parent's script again has joined under its parent's rank; it is no rank."""
    return any(above in answers and answers[above].rank == rank for above in table.ancestors(pid))


def _before_their_store(table: ProcessTable, missing: set[int], found: Sequence[RankTarget]) -> list[RankTarget]:
    """Siblings of the ranks found that have not made their first store, so that only their stacks show their rank."""
    ranks = {target.pid: target.rank for target in found if target.pid is not None}
    unknown = missing - set(ranks.values())
    if not unknown:
        return []
    families = find_spawned(table, {table[pid].ppid for pid in ranks})
    fitting = [family.ranks for family in families if _agrees(family.ranks, ranks)]
    world = found[0].world_size
    return [
        RankTarget(rank=rank, pid=pid, identity="locals", world_size=world)
        for family in fitting
        for pid, rank in family.items()
        if rank in unknown
    ]


def _agrees(family: Mapping[int, int], ranks: Mapping[int, int]) -> bool:
    """True if at least one process is in both, and every such process has the same rank in both."""
    both = family.keys() & ranks.keys()
    return bool(both) and all(family[pid] == ranks[pid] for pid in both)
