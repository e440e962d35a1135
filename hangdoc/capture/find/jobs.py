"""Which processes of this machine belong to which distributed job? Two jobs are never taken for one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import takewhile

from hangdoc.capture.find.job import LAUNCHER_NAMES, Job, common_parent, probe_socket
from hangdoc.capture.find.launchers import Carrier, carriers
from hangdoc.capture.find.process_table import Census
from hangdoc.capture.find.ranks import RankTarget, absent, host_name, target_of
from hangdoc.capture.find.spawned import find_spawned
from hangdoc.capture.find.unlabelled import agents_job, met_jobs, spawned_jobs
from hangdoc.model.launch import is_loopback

_AGENT_NAMES = ("pt_elastic",)


class Jobs:
    """The jobs of a census. ``near``: look into the stacks only of processes related to this pid."""

    def __init__(self, census: Census, near: int | None = None) -> None:
        self.census = census
        self._near = near

    @cached_property
    def all(self) -> tuple[Job, ...]:
        """Every job, the oldest first."""
        jobs = _partition(self.census, self._may_be_parents)
        return tuple(sorted(jobs, key=lambda job: min(self._started(job), default=0.0)))

    def of(self, pid: int) -> Job | None:
        """The job that ``pid`` belongs to: as a rank, a launcher, or by being below one of them."""
        for candidate in (pid, *self.census.ancestors(pid)):
            for job in self.all:
                if candidate in job.inside:
                    return job
            for job in self.all:
                if candidate == job.root:
                    return job
        return None

    def served_by(self, pid: int) -> Job | None:
        """The job whose ranks talk to ``pid`` as their srun: it starts them through Slurm's daemons, so that they are
        no children of its own."""
        ports = {str(entry.port) for entry in self.census.sockets([pid, self.census[pid].ppid]).listening}
        found = [
            job
            for job in self.all
            if any(dict(target.environment).get("SLURM_SRUN_COMM_PORT") in ports for target in job.targets)
        ]
        return found[0] if len(found) == 1 else None

    def below(self, pid: int) -> list[Job]:
        """The jobs that run below ``pid``, without those that run inside another one of them."""
        below = set(self.census.below(pid))
        found = [job for job in self.all if (job.root in below if job.root is not None else below & job.inside)]
        return [job for job in found if not any(self._nested(job, other) for other in found if other is not job)]

    def _nested(self, job: Job, other: Job) -> bool:
        anchor = job.root if job.root is not None else min(job.inside, default=0)
        return bool(other.inside & set(self.census.ancestors(anchor)))

    def _started(self, job: Job) -> Iterable[float]:
        return (self.census[pid].started for pid in (*job.pids, job.root) if pid is not None and pid in self.census)

    def _may_be_parents(self, pids: Collection[int]) -> list[int]:
        """Of the processes that may have started ranks, those worth a look into their children's stacks."""
        if self._near is None:
            return list(pids)
        ancestors = self.census.ancestors(self._near)
        program = [self._near, *takewhile(self.census.is_python, ancestors)][-1]
        related = {self._near, *ancestors, *self.census.below(program)}
        return [pid for pid in pids if pid in related]


def _partition(census: Census, choose: Callable[[Collection[int]], list[int]]) -> list[Job]:
    alive = {pid: entry for pid, entry in census.processes.items() if entry.alive}
    found = carriers(alive, census.is_python)
    spawned = find_spawned(census, choose(_possible_parents(census, found)))
    found, jobs = spawned_jobs(census, found, spawned)
    jobs += [job for group in _groups(census, found) if (job := _job(census, group)) is not None]
    known = {pid for job in jobs for pid in (*job.inside, job.root)}
    jobs += [agents_job(census, pid) for pid, entry in alive.items() if entry.comm in _AGENT_NAMES and pid not in known]
    jobs += met_jobs(census, _strangers(census, jobs))
    return _with_one_root_each(jobs)


# --- ranks that their environment shows ---------------------------------------------------------------------------


def _groups(census: Census, found: Sequence[Carrier]) -> list[list[Carrier]]:
    """Carriers of one job each. Who started them and what they share must agree; no rank may occur twice."""
    by_key: dict[tuple[object, ...], list[Carrier]] = {}
    for carrier in found:
        by_key.setdefault(_key(census, carrier), []).append(carrier)
    groups = [part for group in by_key.values() for part in _without_twins(group)]
    return _joined_fragments(census, _joined_agents(census, groups))


def _key(census: Census, carrier: Carrier) -> tuple[object, ...]:
    if carrier.launcher == "lightning":
        main = carrier.top if carrier.local_rank == 0 else carrier.parent
        return ("lightning", main if main in census and census.is_python(main) else carrier.shared)
    if carrier.launcher == "torchrun" and _is_agent(census, carrier):
        return ("torchrun", carrier.parent)
    network = census.network_namespace(carrier.top)
    if any(carrier.shared[:2]):
        return (carrier.launcher, network, *carrier.shared)
    return (carrier.launcher, network, carrier.parent, census[carrier.pid].argv, *carrier.shared)


def _is_agent(census: Census, carrier: Carrier) -> bool:
    """Whether torchrun's agent, which starts its ranks itself, is still the rank's parent."""
    if carrier.parent not in census or not census.is_python(carrier.parent):
        return False
    return carrier.parent != 1 or census[1].comm in LAUNCHER_NAMES


def _without_twins(group: list[Carrier]) -> list[list[Carrier]]:
    """One list per job: where a rank occurs twice in one restart, those with the same parent belong together. If they
    are only together as many as the job has ranks, one was told a rank that is not its own."""
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


def _joined_agents(census: Census, groups: list[list[Carrier]]) -> list[list[Carrier]]:
    """Several agents of one torchrun job on one machine: same rendezvous, other ranks, and more than one node."""
    joined: dict[tuple[object, ...], list[Carrier]] = {}
    result: list[list[Carrier]] = []
    for group in groups:
        first = group[0]
        nodes = census[first.top].variables.get("GROUP_WORLD_SIZE", "1")
        orphans = not _is_agent(census, first)
        if first.launcher != "torchrun" or (nodes in ("", "1") and not orphans):
            result.append(group)
            continue
        key = (census.network_namespace(first.top), first.shared)
        partner = joined.get(key)
        if partner is not None and not {c.rank for c in partner} & {c.rank for c in group}:
            partner.extend(group)
        else:
            joined.setdefault(key, group)
            result.append(group)
    return result


def _joined_fragments(census: Census, groups: list[list[Carrier]]) -> list[list[Carrier]]:
    """Ranks that one launcher started with different addresses are one job, and that is its fault: those that only
    together are a whole job of their world size, run the same script and are no two jobs by any rank."""
    whole: dict[tuple[int, int, tuple[str, ...]], list[list[Carrier]]] = {}
    for group in groups:
        first = group[0]
        world = first.world_size or 0
        parent = common_parent(census, [carrier.parent for carrier in group])
        if first.launcher == "environment" and parent is not None and len(group) < world:
            whole.setdefault((parent, world, census[first.pid].argv), []).append(group)
    for (_, world, _), fragments in whole.items():
        ranks = sorted(carrier.rank for group in fragments for carrier in group)
        if len(fragments) > 1 and ranks == list(range(world)):
            groups = [group for group in groups if group not in fragments]
            groups.append([carrier for group in fragments for carrier in group])
    return groups


def _job(census: Census, group: Sequence[Carrier]) -> Job | None:
    """The job of a group of carriers; None if it is no job of torch."""
    launcher = group[0].launcher
    latest = max(carrier.restart for carrier in group)
    chosen: dict[int, Carrier] = {}
    rivals: dict[int, list[int]] = {}
    for carrier in sorted(group, key=lambda carrier: (census[carrier.top].started, carrier.top)):
        if carrier.restart == latest:
            own = replace(carrier, pid=_with_torch(census, carrier.pid))
            if chosen.setdefault(carrier.rank, own) is not own:
                rivals.setdefault(carrier.rank, []).append(own.pid)
    if launcher != "torchrun" and all(census.has_torch(carrier.pid) is False for carrier in chosen.values()):
        return None
    host = host_name()
    targets = [
        replace(
            target_of(carrier, census[carrier.pid].variables),
            host=host,
            socket=probe_socket(census, carrier.pid),
            rivals=tuple(rivals.get(carrier.rank, ())),
        )
        for carrier in chosen.values()
    ]
    if not _may_be_elsewhere(launcher, targets):
        targets += absent(targets, host)
    inside = {pid for carrier in group for pid in _between(census, carrier.top, carrier.pid)}
    if launcher == "torchrun":
        inside |= {carrier.parent for carrier in group if _is_agent(census, carrier)}
    return Job(
        _launcher_name(census, launcher, group),
        _root(census, list(chosen.values())),
        tuple(sorted(targets, key=lambda target: target.rank)),
        frozenset(inside),
    )


def _with_torch(census: Census, pid: int) -> int:
    """The rank's Python itself, or the only one below it that has torch where it has none (a Python that wraps)."""
    if census.has_torch(pid) is not False:
        return pid
    below = [other for other in census.below(pid) if census[other].alive and census.is_python(other)]
    fitting = [other for other in below if census.has_torch(other)]
    tops = [other for other in fitting if not set(census.ancestors(other)) & set(fitting)]
    return tops[0] if len(tops) == 1 else pid


def _between(census: Census, top: int, pid: int) -> list[int]:
    above = census.ancestors(pid)
    return [pid, *above[: above.index(top) + 1]] if top in above else [top, pid]


def _may_be_elsewhere(launcher: str, targets: Sequence[RankTarget]) -> bool:
    """Whether ranks started by hand may run on other machines: their store's address tells."""
    if launcher != "environment":
        return False
    environments = [dict(target.environment) for target in targets]
    addresses = {environment.get("MASTER_ADDR", "") for environment in environments}
    counted = any("LOCAL_WORLD_SIZE" in environment for environment in environments)
    return not counted and any(address and not is_loopback(address) for address in addresses)


def _root(census: Census, group: Sequence[Carrier]) -> int | None:
    """The launcher: the one process that started them all, unless it is a shell or manager that starts anything."""
    if group[0].launcher == "lightning":
        mains = [carrier.top for carrier in group if carrier.local_rank == 0]
        return mains[0] if len(mains) == 1 else None
    if group[0].launcher == "environment" and len(group) == 1:
        return None  # whoever started a single rank by hand need not be its launcher
    return common_parent(census, [carrier.parent for carrier in group])


def _launcher_name(census: Census, convention: str, group: Sequence[Carrier]) -> str:
    parents = [census[carrier.parent].argv for carrier in group if carrier.parent in census]
    words = {word.rpartition("/")[2] for argv in parents for word in argv[:6]}
    for name, marks in (("accelerate", {"accelerate", "accelerate.commands.launch"}), ("deepspeed", {"deepspeed"})):
        if words & marks:
            return name
    variables = census[group[0].top].variables
    if convention == "environment":
        for name, mark in (("mpirun", "OMPI_COMM_WORLD_RANK"), ("slurm", "SLURM_STEP_ID")):
            if mark in variables:
                return name
        if "deepspeed.launcher.launch" in words:
            return "deepspeed"
    return convention


def _with_one_root_each(jobs: list[Job]) -> list[Job]:
    """A process that started several jobs is the launcher of none (torchrun's agent starts but one)."""
    count: dict[int | None, int] = {}
    for job in jobs:
        count[job.root] = count.get(job.root, 0) + 1
    return [replace(job, root=None) if count[job.root] > 1 else job for job in jobs]


# --- ranks that their environment does not show ------------------------------------------------------------------


def _possible_parents(census: Census, found: Sequence[Carrier]) -> list[int]:
    """Python processes with children that may be ranks, without launchers' ranks and what is below them."""
    sure = {carrier.top for carrier in found if carrier.launcher in ("torchrun", "lightning", "environment")}
    parents = []
    for parent, children in census.children.items():
        if parent not in census or not any(census[pid].alive for pid in children) or parent in (0, 1, 2):
            continue
        if not census.is_python(parent) or census[parent].comm in _AGENT_NAMES:
            continue
        if sure & {parent, *census.ancestors(parent)} or sure & set(children):
            continue
        parents.append(parent)
    return parents


def _strangers(census: Census, jobs: Sequence[Job]) -> list[int]:
    """Python processes that belong to no job so far."""
    known = {pid for job in jobs for pid in (*job.inside, job.root)}
    return [
        pid
        for pid, entry in census.processes.items()
        if entry.alive
        and entry.comm != "pt_data_worker"
        and census.is_python(pid)
        and pid not in known
        and not any(other in known for other in census.ancestors(pid))
    ]
