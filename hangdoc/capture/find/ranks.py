"""Which processes are the ranks of a job? The probe's registrations first, the process tree second."""

from __future__ import annotations

import socket as socket_module
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hangdoc.capture.find import launchers
from hangdoc.capture.find.launchers import Carrier
from hangdoc.capture.find.process_table import Census, take_census
from hangdoc.capture.find.spawned import find_spawned, siblings, spawned_rank, unreaped
from hangdoc.capture.read import procfs, stacks
from hangdoc.capture.read.probe_client import ProbeClient, ProbeCounters, read_introduction
from hangdoc.model.launch import on_many_hosts
from hangdoc.model.snapshot import Unavailable

_MAX_ABSENT = 100_000


@dataclass(frozen=True, slots=True)
class RankTarget:
    """A rank to look at. ``pid`` None: expected by the world size, never seen. ``socket``: its probe's."""

    rank: int
    pid: int | None
    identity: str
    """'probe', 'environment', 'launcher', 'locals', 'expected' or 'unseen', as in ``RankSnapshot``."""
    world_size: int | None = None
    local_rank: int | None = None
    restart: int = 0
    host: str = ""
    socket: Path | None = None
    environment: tuple[tuple[str, str], ...] = ()
    rivals: tuple[int, ...] = ()
    """Pids of other processes, started beside this one, that carry the same rank."""


@dataclass(frozen=True, slots=True)
class _Member:
    """A process of the job's tree and what its environment says."""

    pid: int
    ppid: int
    started: float
    variables: Mapping[str, str]


def host_name() -> str:
    """This machine's name, as ranks are labelled with."""
    return socket_module.gethostname()


def find_ranks(
    root_pid: int,
    socket_dir: Path | None = None,
    *,
    counters: Mapping[int, ProbeCounters] | None = None,
    known: Sequence[RankTarget] = (),
    deep: bool = False,
    deadline: float = 0.3,
) -> list[RankTarget]:
    """The ranks of the job below ``root_pid`` (itself included) on this machine, sorted by rank.

    ``counters`` by pid: answers of probes that the caller already has; other probes are asked, each for at
    most ``deadline`` seconds. ``deep``: where nothing else tells, read the ranks that multiprocessing
    started from the stacks (py-spy); who was found so before (``known``) stays.
    Of several restarts the latest counts. Ranks that the world size promises and nobody saw have no pid.
    Empty if no process carries a rank.
    """
    processes = procfs.table()
    order = procfs.descendants(root_pid, processes)
    tree = {pid: _member(processes[pid]) for pid in order if processes[pid].state not in "ZX"}
    sockets = _sockets(socket_dir, tree)
    answers = dict(counters or {})
    for pid, path in sockets.items():
        if pid not in answers and (answer := _ask(path, pid, deadline)) is not None:
            answers[pid] = answer
    found = _from_probes(tree, answers)
    registered = {target.pid for target in found}
    found += [target for target in _from_environment(tree) if target.pid not in registered]
    if not found and deep:
        found = _from_locals(tree)
    missing = {target.rank for target in absent(found, "")}
    census = take_census() if deep and missing else None
    found += _missing(missing, found, tree, known, census)
    host = host_name()
    chosen = [
        replace(target, host=host, socket=sockets.get(target.pid) if target.pid is not None else None)
        for target in _one_per_rank(found, tree)
    ]
    gone = absent(chosen, host)
    if gone and census is not None and _strangers(chosen, tree, census):
        gone = [replace(target, identity="unseen") for target in gone]
    return sorted(chosen + gone, key=lambda target: target.rank)


def _member(entry: procfs.Stat) -> _Member:
    return _Member(entry.pid, entry.ppid, entry.started, procfs.environment(entry.pid) or {})


def _sockets(folder: Path | None, tree: Mapping[int, _Member]) -> dict[int, Path]:
    """The probe sockets of living processes of the tree, by pid."""
    if folder is None:
        return {}
    try:
        paths = list(folder.glob("*.sock"))
    except OSError:
        return {}
    return {int(path.stem): path for path in paths if path.stem.isdigit() and int(path.stem) in tree}


def _ask(path: Path, pid: int, deadline: float) -> ProbeCounters | None:
    client = ProbeClient(path, pid)
    try:
        return client.counters(deadline) or read_introduction(path.with_suffix(".rank"))
    finally:
        client.close()


def _from_probes(tree: Mapping[int, _Member], answers: Mapping[int, ProbeCounters]) -> list[RankTarget]:
    found = []
    for pid, answer in answers.items():
        member = tree.get(pid)
        if member is None or answer.rank is None or _runs_again(member, answer.rank, tree, answers):
            continue
        found.append(
            RankTarget(
                rank=answer.rank,
                pid=pid,
                identity="probe",
                world_size=answer.world_size,
                local_rank=answer.local_rank,
                restart=answer.restart or 0,
                environment=tuple(sorted(member.variables.items())),
            )
        )
    return found


def _runs_again(member: _Member, rank: int, tree: Mapping[int, _Member], answers: Mapping[int, ProbeCounters]) -> bool:
    """A helper that runs its parent's script again has joined under its parent's rank; it is no rank."""
    above, seen = tree.get(member.ppid), {member.pid}
    while above is not None and above.pid not in seen:
        if above.pid in answers and answers[above.pid].rank == rank:
            return True
        seen.add(above.pid)
        above = tree.get(above.ppid)
    return False


def _from_environment(tree: Mapping[int, _Member]) -> list[RankTarget]:
    """The ranks of the most telling convention that any process of the tree follows, without nested jobs'."""
    found = launchers.carriers(tree, procfs.is_python)
    followed = {carrier.launcher for carrier in found}
    first = next((convention.name for convention in launchers.CONVENTIONS if convention.name in followed), "")
    found = [carrier for carrier in found if carrier.launcher == first]
    tops = {carrier.top for carrier in found}
    return [target_of(carrier, tree[carrier.top].variables) for carrier in found if not tops & _above(carrier, tree)]


def target_of(carrier: Carrier, variables: Mapping[str, str]) -> RankTarget:
    """What to look at, of a rank that a launcher started."""
    return RankTarget(
        rank=carrier.rank,
        pid=carrier.pid,
        identity=carrier.identity,
        world_size=carrier.world_size,
        local_rank=carrier.local_rank,
        restart=carrier.restart,
        environment=tuple(sorted(variables.items())),
    )


def _above(carrier: Carrier, tree: Mapping[int, _Member]) -> set[int]:
    """The processes above a rank, without a launcher that is a rank itself (Lightning's main script)."""
    above: set[int] = set()
    pid = carrier.parent
    while pid in tree and pid not in above:
        above.add(pid)
        pid = tree[pid].ppid
    return above - {carrier.parent} if carrier.launcher == "lightning" else above


def _from_locals(tree: Mapping[int, _Member]) -> list[RankTarget]:
    spawned = [
        pid
        for pid in tree
        if any("multiprocessing.spawn" in word or "multiprocessing.forkserver" in word for word in procfs.argv(pid))
    ]
    found = []
    for pid, threads in stacks.dump(spawned).items():
        if isinstance(threads, Unavailable):
            continue
        ranks = [rank for thread in threads if (rank := spawned_rank(thread.frames)) is not None]
        if ranks:
            found.append(RankTarget(rank=ranks[0], pid=pid, identity="locals"))
    return [replace(target, world_size=len(found)) for target in found]


def _missing(
    missing: set[int],
    found: Sequence[RankTarget],
    tree: Mapping[int, _Member],
    known: Sequence[RankTarget],
    census: Census | None,
) -> list[RankTarget]:
    """Ranks that stand before their first store, so that nothing but their stacks tells which they are: siblings of
    those that are found."""
    kept = [target for target in known if target.identity == "locals" and target.pid in tree]
    kept = [target for target in kept if target.rank in missing]
    missing = missing - {target.rank for target in kept}
    if not missing or census is None:
        return kept
    ranks = {target.pid: target.rank for target in found if target.pid is not None}
    families = find_spawned(census, {tree[pid].ppid for pid in ranks})
    fitting = [family.ranks for family in families if _agrees(family.ranks, ranks)]
    world = found[0].world_size
    return kept + [
        RankTarget(rank=rank, pid=pid, identity="locals", world_size=world)
        for family in fitting
        for pid, rank in family.items()
        if rank in missing and pid in tree
    ]


def _strangers(found: Sequence[RankTarget], tree: Mapping[int, _Member], census: Census) -> bool:
    """Is there a sibling of the ranks that may be one as well, and does not say which, or has ended unreaped?"""
    pids = {target.pid for target in found if target.pid is not None}
    parents = {tree[pid].ppid for pid in pids}
    return any(set(siblings(census, parent)) - pids or unreaped(census, parent) for parent in parents)


def _agrees(family: Mapping[int, int], ranks: Mapping[int, int]) -> bool:
    """Are those of the family that are known the ranks that their arguments say?"""
    both = family.keys() & ranks.keys()
    return bool(both) and all(family[pid] == ranks[pid] for pid in both)


def _one_per_rank(found: list[RankTarget], tree: Mapping[int, _Member]) -> list[RankTarget]:
    """Of the latest restart one process per rank: the probe's word outranks the environment's."""
    latest = max((target.restart for target in found), default=0)
    chosen: dict[int, RankTarget] = {}
    for target in found:
        if target.restart == latest:
            first = chosen.setdefault(target.rank, target)
            if first.pid != target.pid and _beside(first, target, tree):
                chosen[target.rank] = replace(first, rivals=(*first.rivals, target.pid or 0))
    return list(chosen.values())


def _beside(a: RankTarget, b: RankTarget, tree: Mapping[int, _Member]) -> bool:
    """Did one process start both?"""
    both = [tree[target.pid].ppid for target in (a, b) if target.pid is not None and target.pid in tree]
    return len(both) == 2 and both[0] == both[1]


def absent(found: Sequence[RankTarget], host: str) -> list[RankTarget]:
    """Ranks of a job on one machine that the world size promises and nobody is."""
    world = max((target.world_size or 0 for target in found), default=0)
    if world > _MAX_ABSENT or any(_many_nodes(dict(target.environment), target, world) for target in found):
        return []
    present = {target.rank for target in found}
    restart = max((target.restart for target in found), default=0)
    return [
        RankTarget(rank, None, "expected", world_size=world, restart=restart, host=host)
        for rank in range(world)
        if rank not in present
    ]


def _many_nodes(environment: Mapping[str, str], target: RankTarget, world: int) -> bool:
    """Whether a rank's environment says that other machines take part."""
    elastic = "TORCHELASTIC_RUN_ID" in environment
    other_local = target.local_rank is not None and target.local_rank != target.rank and not elastic
    return other_local or on_many_hosts(environment, world)
