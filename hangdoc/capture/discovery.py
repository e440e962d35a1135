"""Which processes are the ranks of a job? The probe's registrations first, the process tree second.

Launchers and what they show from outside: torchrun, accelerate and DeepSpeed set RANK; Lightning's script
launcher sets LOCAL_RANK, NODE_RANK and WORLD_SIZE in the scripts it runs again and nothing in the first
one, which is rank 0 of its node; mpirun sets OMPI_COMM_WORLD_RANK, srun SLURM_PROCID; mp.spawn sets
nothing.
"""

from __future__ import annotations

import socket as socket_module
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from hangdoc.capture import procfs, stacks
from hangdoc.capture.journal import ProbeClient, ProbeCounters
from hangdoc.model.process import Stack
from hangdoc.model.snapshot import Unavailable

_MAX_ABSENT = 100_000


@dataclass(frozen=True, slots=True)
class RankTarget:
    """A rank to look at. ``pid`` None: expected by the world size, never seen. ``socket``: its probe's."""

    rank: int
    pid: int | None
    identity: str
    """'probe', 'environment', 'launcher', 'locals' or 'expected', as in ``RankSnapshot``."""
    world_size: int | None = None
    local_rank: int | None = None
    restart: int = 0
    host: str = ""
    socket: Path | None = None
    environment: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class _Member:
    """A process of the job's tree and what its environment says."""

    pid: int
    ppid: int
    started: float
    environment: Mapping[str, str]


def host_name() -> str:
    """This machine's name, as ranks are labelled with."""
    return socket_module.gethostname()


def find_ranks(
    root_pid: int,
    socket_dir: Path | None = None,
    *,
    counters: Mapping[int, ProbeCounters] | None = None,
    deep: bool = False,
    deadline: float = 0.3,
) -> list[RankTarget]:
    """The ranks of the job below ``root_pid`` (itself included) on this machine, sorted by rank.

    ``counters`` by pid: answers of probes that the caller already has; other probes are asked, each for at
    most ``deadline`` seconds. ``deep``: where nothing else tells, read the ranks of mp.spawn from the
    stacks (py-spy). Of several restarts the latest counts. Ranks that the world size promises and nobody
    saw have no pid. Empty if no process carries a rank.
    """
    processes = procfs.table()
    order = procfs.descendants(root_pid, processes)
    tree = {pid: _member(processes[pid]) for pid in order if processes[pid].state not in "ZX"}
    sockets = _sockets(socket_dir, tree)
    answers = dict(counters or {})
    for pid, path in sockets.items():
        if pid not in answers and (answer := _ask(path, deadline)) is not None:
            answers[pid] = answer
    found = _from_probes(tree, answers)
    known = {target.pid for target in found}
    found += [target for target in _from_environment(tree) if target.pid not in known]
    if not found and deep:
        found = _from_locals(tree)
    host = host_name()
    chosen = [
        replace(target, host=host, socket=sockets.get(target.pid) if target.pid is not None else None)
        for target in _one_per_rank(found)
    ]
    return sorted(chosen + _absent(chosen, host), key=lambda target: target.rank)


def spawned_rank(stack: Stack) -> int | None:
    """The rank of a torch.multiprocessing.spawn process: local ``i`` of its ``_wrap`` (torch 1.8 to 2.13)."""
    for frame in stack:
        if frame.file.endswith("torch/multiprocessing/spawn.py") and frame.function == "_wrap":
            for local in frame.locals:
                if local.name == "i" and local.value.isdigit():
                    return int(local.value)
    return None


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


def _ask(path: Path, deadline: float) -> ProbeCounters | None:
    client = ProbeClient(path)
    try:
        return client.counters(deadline)
    finally:
        client.close()


def _from_probes(tree: Mapping[int, _Member], answers: Mapping[int, ProbeCounters]) -> list[RankTarget]:
    found = []
    for pid, answer in answers.items():
        member = tree.get(pid)
        if member is None or answer.rank is None:
            continue
        found.append(
            RankTarget(
                rank=answer.rank,
                pid=pid,
                identity="probe",
                world_size=answer.world_size,
                local_rank=answer.local_rank,
                restart=answer.restart or 0,
                environment=tuple(sorted(member.environment.items())),
            )
        )
    return found


def _from_environment(tree: Mapping[int, _Member]) -> list[RankTarget]:
    """The first convention that any process of the tree follows, the most telling ones first."""
    for finder in (_elastic, _plain, _mpi, _lightning, _slurm):
        found = finder(tree)
        if found:
            return found
    return []


def _elastic(tree: Mapping[int, _Member]) -> list[RankTarget]:
    """torchrun and accelerate. An agent inside a cluster job may itself carry a RANK, which is the node's."""
    return _carriers(tree, "TORCHELASTIC_RUN_ID", "RANK", "WORLD_SIZE", "LOCAL_RANK")


def _plain(tree: Mapping[int, _Member]) -> list[RankTarget]:
    return _carriers(tree, "RANK", "RANK", "WORLD_SIZE", "LOCAL_RANK")


def _mpi(tree: Mapping[int, _Member]) -> list[RankTarget]:
    prefix = "OMPI_COMM_WORLD_"
    return _carriers(tree, prefix + "RANK", prefix + "RANK", prefix + "SIZE", prefix + "LOCAL_RANK")


def _slurm(tree: Mapping[int, _Member]) -> list[RankTarget]:
    return _carriers(tree, "SLURM_PROCID", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID")


def _carriers(tree: Mapping[int, _Member], mark: str, rank: str, world: str, local: str) -> list[RankTarget]:
    """The topmost processes that carry ``mark``: what they start inherits it and is no rank of its own."""
    found = []
    for member in tree.values():
        number = _number(member.environment.get(rank))
        parent = tree.get(member.ppid)
        inherited = (
            parent is not None
            and mark in parent.environment
            and parent.environment.get(rank) == member.environment.get(rank)
        )
        if mark not in member.environment or number is None or inherited:
            continue
        found.append(
            RankTarget(
                rank=number,
                pid=_through_wrappers(member.pid, tree),
                identity="environment",
                world_size=_number(member.environment.get(world)),
                local_rank=_number(member.environment.get(local)),
                restart=_number(member.environment.get("TORCHELASTIC_RESTART_COUNT")) or 0,
                environment=tuple(sorted(member.environment.items())),
            )
        )
    return found


def _through_wrappers(pid: int, tree: Mapping[int, _Member]) -> int:
    """Down from a shell or another wrapper that the launcher started to the one Python process it runs."""
    while not procfs.is_python(pid):
        children = [member.pid for member in tree.values() if member.ppid == pid]
        if len(children) != 1:
            break
        pid = children[0]
    return pid


def _lightning(tree: Mapping[int, _Member]) -> list[RankTarget]:
    scripts = [
        member
        for member in tree.values()
        if {"LOCAL_RANK", "NODE_RANK", "WORLD_SIZE"} <= member.environment.keys()
        and "RANK" not in member.environment
        and "LOCAL_RANK" not in _parent_environment(member, tree)
    ]
    if not scripts:
        return []
    main, count = Counter(member.ppid for member in scripts).most_common(1)[0]
    found = []
    for member in scripts:
        local = _number(member.environment["LOCAL_RANK"])
        node = _number(member.environment["NODE_RANK"]) or 0
        if local is None:
            continue
        found.append(
            RankTarget(
                rank=node * (count + 1) + local,
                pid=member.pid,
                identity="launcher",
                world_size=_number(member.environment["WORLD_SIZE"]),
                local_rank=local,
                environment=tuple(sorted(member.environment.items())),
            )
        )
    if found and main in tree:
        first = found[0]
        node = (first.rank - (first.local_rank or 0)) // (count + 1)
        own = tuple(sorted(tree[main].environment.items()))
        found.append(replace(first, rank=node * (count + 1), pid=main, local_rank=0, environment=own))
    return found


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


def _one_per_rank(found: list[RankTarget]) -> list[RankTarget]:
    """Of the latest restart one process per rank: the probe's word outranks the environment's."""
    latest = max((target.restart for target in found), default=0)
    chosen: dict[int, RankTarget] = {}
    for target in found:
        if target.restart == latest:
            chosen.setdefault(target.rank, target)
    return list(chosen.values())


def _absent(found: list[RankTarget], host: str) -> list[RankTarget]:
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
    for name, of in (("LOCAL_WORLD_SIZE", "WORLD_SIZE"), ("OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_SIZE")):
        # Against the launcher's own count: the program may believe in another one, and that is a finding.
        local = _number(environment.get(name))
        if local is not None and local < (_number(environment.get(of)) or world):
            return True
    for name in ("GROUP_WORLD_SIZE", "SLURM_NNODES"):
        if (_number(environment.get(name)) or 1) > 1:
            return True
    elastic = "TORCHELASTIC_RUN_ID" in environment
    node = _number(environment.get("GROUP_RANK" if elastic else "NODE_RANK")) or 0
    return node > 0 or (target.local_rank is not None and target.local_rank != target.rank and not elastic)


def _parent_environment(member: _Member, tree: Mapping[int, _Member]) -> Mapping[str, str]:
    parent = tree.get(member.ppid)
    return parent.environment if parent is not None else {}


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdigit() and len(text) < 10 else None
