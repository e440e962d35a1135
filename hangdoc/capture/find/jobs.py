"""Sort the processes of this machine into distributed jobs. Two jobs are never taken for one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import takewhile

from hangdoc.capture.find.job import LAUNCHER_NAMES, Job, common_parent, probe_socket
from hangdoc.capture.find.job_ranks import targets_of
from hangdoc.capture.find.launchers import Carrier, carriers
from hangdoc.capture.find.process_table import ProcessTable
from hangdoc.capture.find.promised import absent, may_be_elsewhere
from hangdoc.capture.find.spawned import find_spawned
from hangdoc.capture.find.target import host_name
from hangdoc.capture.find.unlabelled import agents_job, jobs_of_stores, spawned_jobs

_AGENT_NAMES = ("pt_elastic",)


class Jobs:
    """The jobs of a table. ``near``: look into the stacks only of processes related to this pid."""

    def __init__(self, table: ProcessTable, near: int | None = None) -> None:
        self.table = table
        self._near = near

    @cached_property
    def all(self) -> tuple[Job, ...]:
        """Every job, the oldest first."""
        jobs = _partition(self.table, self._may_be_parents)
        return tuple(sorted(jobs, key=lambda job: min(self._started(job), default=0.0)))

    def of(self, pid: int) -> Job | None:
        """The job that ``pid`` belongs to: as a rank, a launcher, or by being below one of them."""
        for candidate in (pid, *self.table.ancestors(pid)):
            for job in self.all:
                if candidate in job.inside:
                    return job
            for job in self.all:
                if candidate == job.root:
                    return job
        return None

    def served_by(self, pid: int) -> Job | None:
        """The job whose srun is ``pid``. srun starts ranks through Slurm's daemons, so they are not its children."""
        ports = {str(entry.port) for entry in self.table.sockets([pid, self.table[pid].ppid]).listening}
        found = [
            job
            for job in self.all
            if any(dict(target.environment).get("SLURM_SRUN_COMM_PORT") in ports for target in job.targets)
        ]
        return found[0] if len(found) == 1 else None

    def below(self, pid: int) -> list[Job]:
        """The jobs that run below ``pid``, without those that run inside another one of them."""
        below = set(self.table.below(pid))
        found = [job for job in self.all if (job.root in below if job.root is not None else below & job.inside)]
        return [job for job in found if not any(self._nested(job, other) for other in found if other is not job)]

    def _nested(self, job: Job, other: Job) -> bool:
        anchor = job.root if job.root is not None else min(job.inside, default=0)
        return bool(other.inside & set(self.table.ancestors(anchor)))

    def _started(self, job: Job) -> Iterable[float]:
        return (self.table[pid].started for pid in (*job.pids, job.root) if pid is not None and pid in self.table)

    def _may_be_parents(self, pids: Collection[int]) -> list[int]:
        """Of the processes that may have started ranks, those worth a look into their children's stacks."""
        if self._near is None:
            return list(pids)
        ancestors = self.table.ancestors(self._near)
        program = [self._near, *takewhile(self.table.is_python, ancestors)][-1]
        related = {self._near, *ancestors, *self.table.below(program)}
        return [pid for pid in pids if pid in related]


def _partition(table: ProcessTable, choose: Callable[[Collection[int]], list[int]]) -> list[Job]:
    alive = {pid: entry for pid, entry in table.processes.items() if entry.alive}
    found = carriers(alive, table.is_python)
    spawned = find_spawned(table, choose(_possible_parents(table, found)))
    found, jobs = spawned_jobs(table, found, spawned)
    jobs += [job for group in _groups(table, found) if (job := _job(table, group)) is not None]
    known = {pid for job in jobs for pid in (*job.inside, job.root)}
    jobs += [agents_job(table, pid) for pid, entry in alive.items() if entry.comm in _AGENT_NAMES and pid not in known]
    jobs += jobs_of_stores(table, _strangers(table, jobs))
    return _with_one_root_each(jobs)


# --- ranks that their environment shows ---------------------------------------------------------------------------


def _groups(table: ProcessTable, found: Sequence[Carrier]) -> list[list[Carrier]]:
    """Lists of carriers, one for each job: the same parent, the same shared variables, no rank twice."""
    by_key: dict[tuple[object, ...], list[Carrier]] = {}
    for carrier in found:
        by_key.setdefault(_key(table, carrier), []).append(carrier)
    groups = [part for group in by_key.values() for part in _without_twins(group)]
    return _joined_fragments(table, _joined_agents(table, groups))


def _key(table: ProcessTable, carrier: Carrier) -> tuple[object, ...]:
    if carrier.launcher == "lightning":
        main = carrier.top if carrier.local_rank == 0 else carrier.parent
        return ("lightning", main if main in table and table.is_python(main) else carrier.shared)
    if carrier.launcher == "torchrun" and _is_agent(table, carrier):
        return ("torchrun", carrier.parent)
    network = table.network_namespace(carrier.top)
    if any(carrier.shared[:2]):
        return (carrier.launcher, network, *carrier.shared)
    return (carrier.launcher, network, carrier.parent, table[carrier.pid].argv, *carrier.shared)


def _is_agent(table: ProcessTable, carrier: Carrier) -> bool:
    """True if the rank's parent is still torchrun's agent, which starts its ranks itself."""
    if carrier.parent not in table or not table.is_python(carrier.parent):
        return False
    return carrier.parent != 1 or table[1].comm in LAUNCHER_NAMES


def _without_twins(group: list[Carrier]) -> list[list[Carrier]]:
    """One list per job: where a rank occurs twice in one restart, siblings belong together. If siblings with a repeated
    rank are as many as the job has ranks, they are one job in which a launcher gave one rank twice.

    Ranks 0 and 1 of two, started by pid 5, and ranks 0 and 1 of two, started by pid 6 → two lists. Ranks 0, 1 and 1 of
    three, started by pid 5 → one list.
    """
    if len({(carrier.rank, carrier.restart) for carrier in group}) == len(group):
        return [group]
    by_parent: dict[int, list[Carrier]] = {}
    for carrier in group:
        by_parent.setdefault(carrier.parent, []).append(carrier)
    parts: list[list[Carrier]] = []
    for siblings in by_parent.values():
        if len(siblings) == siblings[0].world_size and len({carrier.restart for carrier in siblings}) == 1:
            parts.append(siblings)
            continue
        batch: dict[tuple[int, int], Carrier] = {}
        for carrier in siblings:
            if (carrier.rank, carrier.restart) in batch:
                parts.append(list(batch.values()))
                batch = {}
            batch[carrier.rank, carrier.restart] = carrier
        parts.append(list(batch.values()))
    return parts


def _joined_agents(table: ProcessTable, groups: list[list[Carrier]]) -> list[list[Carrier]]:
    """Join several agents of one torchrun job on one machine: same rendezvous, other ranks, and more than one node.

    `torchrun --nnodes 2` twice, by pids 5 and 6: [ranks 0 and 1, below 5], [ranks 2 and 3, below 6] → [ranks 0 to 3].
    """
    joined: dict[tuple[object, ...], list[Carrier]] = {}
    result: list[list[Carrier]] = []
    for group in groups:
        first = group[0]
        nodes = table[first.top].variables.get("GROUP_WORLD_SIZE", "1")
        orphans = not _is_agent(table, first)
        if first.launcher != "torchrun" or (nodes in ("", "1") and not orphans):
            result.append(group)
            continue
        key = (table.network_namespace(first.top), first.shared)
        partner = joined.get(key)
        if partner is not None and not {c.rank for c in partner} & {c.rank for c in group}:
            partner.extend(group)
        else:
            joined.setdefault(key, group)
            result.append(group)
    return result


def _joined_fragments(table: ProcessTable, groups: list[list[Carrier]]) -> list[list[Carrier]]:
    """Join ranks that one launcher gave different addresses, which is the fault to report: groups of one parent and one
    script that only together have every rank of their world size exactly once.

    [rank 0 of 2 with MASTER_PORT 1] and [rank 1 of 2 with MASTER_PORT 2], siblings → [rank 0, rank 1].
    """
    for world, fragments in _fragments(table, groups):
        ranks = sorted(carrier.rank for group in fragments for carrier in group)
        # The length first: any process may claim to be one of a billion.
        if len(fragments) > 1 and len(ranks) == world and ranks == list(range(world)):
            groups = [group for group in groups if group not in fragments]
            groups.append([carrier for group in fragments for carrier in group])
    return groups


def _fragments(table: ProcessTable, groups: list[list[Carrier]]) -> list[tuple[int, list[list[Carrier]]]]:
    """For each parent, world size and script: (world size, the groups that have fewer ranks than that)."""
    found: dict[tuple[int, int, tuple[str, ...]], list[list[Carrier]]] = {}
    for group in groups:
        first = group[0]
        world = first.world_size or 0
        parent = common_parent(table, [carrier.parent for carrier in group])
        if first.launcher == "environment" and parent is not None and len(group) < world:
            found.setdefault((parent, world, table[first.pid].argv), []).append(group)
    return [(world, fragments) for (_, world, _), fragments in found.items()]


def _job(table: ProcessTable, group: Sequence[Carrier]) -> Job | None:
    """The job of a group of carriers; None if it is no job of torch."""
    launcher = group[0].launcher
    carried = [replace(carrier, pid=_with_torch(table, carrier.pid)) for carrier in group]
    targets = targets_of(table, carried, partial(probe_socket, table))
    if launcher != "torchrun" and all(table.has_torch(target.pid) is False for target in targets if target.pid):
        return None
    if launcher != "environment" or not may_be_elsewhere(targets):
        targets += absent(targets, host_name())
    chosen = {target.pid for target in targets}
    return Job(
        _launcher_name(table, launcher, group),
        _root(table, [carrier for carrier in carried if carrier.pid in chosen]),
        tuple(sorted(targets, key=lambda target: target.rank)),
        _inside(table, launcher, group),
    )


def _inside(table: ProcessTable, launcher: str, group: Sequence[Carrier]) -> frozenset[int]:
    """The pids of the ranks, of what wraps them, and of torchrun's agents."""
    inside = {pid for carrier in group for pid in _between(table, carrier.top, carrier.pid)}
    if launcher == "torchrun":
        inside |= {carrier.parent for carrier in group if _is_agent(table, carrier)}
    return frozenset(inside)


def _with_torch(table: ProcessTable, pid: int) -> int:
    """The rank's Python, or, if that one only wraps another and has no torch, the only process below it with torch."""
    if table.has_torch(pid) is not False:
        return pid
    below = [other for other in table.below(pid) if table[other].alive and table.is_python(other)]
    fitting = [other for other in below if table.has_torch(other)]
    tops = [other for other in fitting if not set(table.ancestors(other)) & set(fitting)]
    return tops[0] if len(tops) == 1 else pid


def _between(table: ProcessTable, top: int, pid: int) -> list[int]:
    above = table.ancestors(pid)
    return [pid, *above[: above.index(top) + 1]] if top in above else [top, pid]


def _root(table: ProcessTable, group: Sequence[Carrier]) -> int | None:
    """The launcher: the one process that started them all, unless it is a shell or manager that starts anything."""
    if group[0].launcher == "lightning":
        mains = [carrier.top for carrier in group if carrier.local_rank == 0]
        return mains[0] if len(mains) == 1 else None
    if group[0].launcher == "environment" and len(group) == 1:
        return None  # the parent of a single rank that was started by hand need not be a launcher
    return common_parent(table, [carrier.parent for carrier in group])


def _launcher_name(table: ProcessTable, convention: str, group: Sequence[Carrier]) -> str:
    parents = [table[carrier.parent].argv for carrier in group if carrier.parent in table]
    words = {word.rpartition("/")[2] for argv in parents for word in argv[:6]}
    for name, marks in (("accelerate", {"accelerate", "accelerate.commands.launch"}), ("deepspeed", {"deepspeed"})):
        if words & marks:
            return name
    variables = table[group[0].top].variables
    if convention == "environment":
        for name, mark in (("mpirun", "OMPI_COMM_WORLD_RANK"), ("slurm", "SLURM_STEP_ID")):
            if mark in variables:
                return name
        if "deepspeed.launcher.launch" in words:
            return "deepspeed"
    return convention


def _with_one_root_each(jobs: list[Job]) -> list[Job]:
    """A process that started several jobs is not a launcher (torchrun's agent starts one)."""
    count: dict[int | None, int] = {}
    for job in jobs:
        count[job.root] = count.get(job.root, 0) + 1
    return [replace(job, root=None) if count[job.root] > 1 else job for job in jobs]


# --- ranks that their environment does not show ------------------------------------------------------------------


def _possible_parents(table: ProcessTable, found: Sequence[Carrier]) -> list[int]:
    """Python processes with children that may be ranks, without launchers' ranks and what is below them."""
    sure = {carrier.top for carrier in found if carrier.launcher in ("torchrun", "lightning", "environment")}
    parents = []
    for parent, children in table.children.items():
        if parent not in table or not any(table[pid].alive for pid in children) or parent in (0, 1, 2):
            continue
        if not table.is_python(parent) or table[parent].comm in _AGENT_NAMES:
            continue
        if sure & {parent, *table.ancestors(parent)} or sure & set(children):
            continue
        parents.append(parent)
    return parents


def _strangers(table: ProcessTable, jobs: Sequence[Job]) -> list[int]:
    """Python processes that belong to no job so far."""
    known = {pid for job in jobs for pid in (*job.inside, job.root)}
    return [
        pid
        for pid, entry in table.processes.items()
        if entry.alive
        and entry.comm != "pt_data_worker"
        and table.is_python(pid)
        and pid not in known
        and not any(other in known for other in table.ancestors(pid))
    ]
