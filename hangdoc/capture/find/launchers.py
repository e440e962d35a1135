"""The variables that launchers set for the ranks they start, and which process of each start is the rank.

torchrun, accelerate and DeepSpeed set RANK; Lightning's script launcher sets LOCAL_RANK, NODE_RANK and WORLD_SIZE
in the scripts it runs again and nothing in the first one, which is rank 0 of its node; Open MPI sets
OMPI_COMM_WORLD_RANK, MPICH PMI_RANK, srun SLURM_PROCID; mp.spawn and Ray set nothing. (torch 1.10 to 2.13, Lightning 2,
Open MPI 4 and 5, Slurm 20 to 24.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from hangdoc.model.launch import number


class Member(Protocol):
    """The attributes of a process that this module needs."""

    @property
    def pid(self) -> int:
        """Its id."""

    @property
    def ppid(self) -> int:
        """Its parent's id."""

    @property
    def variables(self) -> Mapping[str, str]:
        """Its allow-listed environment; empty where it cannot be read."""


@dataclass(frozen=True, slots=True)
class Convention:
    """The variables of one family of launchers. ``shared``: those that all ranks of a job have in common."""

    name: str
    rank: str
    world: str
    local: str
    needs: str
    shared: tuple[str, ...]


# The most specific first: it decides about a process that follows several.
CONVENTIONS = (
    Convention(
        "torchrun",
        *("RANK", "WORLD_SIZE", "LOCAL_RANK", "TORCHELASTIC_RUN_ID"),
        # Not TORCHELASTIC_RESTART_COUNT: each agent counts the failures of its own ranks.
        ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE"),
    ),
    Convention(
        "environment",
        *("RANK", "WORLD_SIZE", "LOCAL_RANK", "RANK"),
        ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "PMIX_NAMESPACE", "SLURM_JOB_ID", "SLURM_STEP_ID"),
    ),
    Convention(
        "mpirun",
        *("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_RANK"),
        ("PMIX_NAMESPACE", "OMPI_COMM_WORLD_SIZE"),
    ),
    Convention("lightning", "", "WORLD_SIZE", "LOCAL_RANK", "NODE_RANK", ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE")),
    Convention("mpich", *("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "PMI_RANK"), ("PMI_SIZE",)),
    Convention(
        "slurm",
        *("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_PROCID"),
        ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_NTASKS"),
    ),
)
_PRECEDENCE = {convention.name: number for number, convention in enumerate(CONVENTIONS)}


@dataclass(frozen=True, slots=True)
class Carrier:
    """A process that a launcher started as a rank. ``top`` is the topmost process that carries it, ``pid`` the Python
    below it (the same one, unless a shell or another wrapper runs it), ``parent`` the process that started ``top``."""

    launcher: str
    rank: int
    pid: int
    top: int
    parent: int
    world_size: int | None = None
    local_rank: int | None = None
    restart: int = 0
    shared: tuple[str, ...] = ()

    @property
    def identity(self) -> str:
        """As in ``RankTarget``."""
        return "launcher" if self.launcher == "lightning" else "environment"


def carriers(members: Mapping[int, Member], is_python: Callable[[int], bool]) -> list[Carrier]:
    """Every rank that the environments of ``members`` show, of however many jobs.

    A child of a rank inherits its variables and is not a rank of its own. A process that has the variables of one
    launcher and started the ranks of another (srun → torchrun → ranks) is a launcher. Example: bash (RANK=1), its child
    python (RANK=1), which is a DataLoader worker's parent (RANK=1) → one carrier, with bash at the top and that python.
    """
    marks = {member.pid: mark for member in members.values() if (mark := _mark(member.variables)) is not None}
    tops = [pid for pid, mark in marks.items() if marks.get(members[pid].ppid) != mark]
    children: dict[int, list[int]] = {}
    for member in members.values():
        children.setdefault(member.ppid, []).append(member.pid)
    least_telling_first = sorted(tops, key=lambda pid: -_PRECEDENCE[marks[pid][0].name])
    started_by = {members[pid].ppid: marks[pid][0].name for pid in least_telling_first}
    found = []
    for pid in tops:
        convention, _, shared = marks[pid]
        python = through_wrappers(pid, children, is_python)
        below = started_by.get(python)
        if below is not None and _PRECEDENCE[below] < _PRECEDENCE[convention.name]:
            continue
        if convention.name != "lightning":
            found.append(_carrier(members[pid], python, convention, shared))
    lightning = [pid for pid in tops if marks[pid][0].name == "lightning"]
    return found + _lightning(members, lightning, marks, is_python)


def through_wrappers(pid: int, children: Mapping[int, list[int]], is_python: Callable[[int], bool]) -> int:
    """Down from a shell or another wrapper that the launcher started to the one Python process it runs."""
    while not is_python(pid):
        below = children.get(pid, ())
        if len(below) != 1:
            break
        pid = below[0]
    return pid


_Mark = tuple[Convention, str, tuple[str, ...]]


def _mark(variables: Mapping[str, str]) -> _Mark | None:
    """(convention, rank, values of the shared variables): equal in a rank and in the processes it starts."""
    for convention in CONVENTIONS:
        if convention.needs not in variables:
            continue
        if convention.name == "lightning":
            if "RANK" in variables or not {"LOCAL_RANK", "WORLD_SIZE"} <= variables.keys():
                continue
            rank = f"{variables['NODE_RANK']}:{variables['LOCAL_RANK']}"
        else:
            rank = variables.get(convention.rank, "")
            if number(rank) is None:
                continue
        return convention, rank, tuple(variables.get(name, "") for name in convention.shared)
    return None


def _carrier(member: Member, python: int, convention: Convention, shared: tuple[str, ...]) -> Carrier:
    variables = member.variables
    return Carrier(
        launcher=convention.name,
        rank=number(variables[convention.rank]) or 0,
        pid=python,
        top=member.pid,
        parent=member.ppid,
        world_size=number(variables.get(convention.world)),
        local_rank=number(variables.get(convention.local)),
        restart=number(variables.get("TORCHELASTIC_RESTART_COUNT")) or 0,
        shared=shared,
    )


def _lightning(
    members: Mapping[int, Member], tops: list[int], marks: Mapping[int, _Mark], is_python: Callable[[int], bool]
) -> list[Carrier]:
    """The scripts that Lightning ran again, and the ones that ran them: rank 0 of their node."""
    per_main = Counter(members[pid].ppid for pid in tops)
    found = []
    mains: dict[int, Carrier] = {}
    for pid in tops:
        member, shared = members[pid], marks[pid][2]
        local, node = number(member.variables["LOCAL_RANK"]), number(member.variables["NODE_RANK"]) or 0
        if local is None:
            continue
        count = per_main[member.ppid] + 1
        world = number(member.variables["WORLD_SIZE"])
        script = Carrier("lightning", node * count + local, pid, pid, member.ppid, world, local, 0, shared)
        found.append(script)
        if member.ppid in members and member.ppid not in mains and is_python(member.ppid):
            main = members[member.ppid]
            mains[main.pid] = Carrier("lightning", node * count, main.pid, main.pid, main.ppid, world, 0, 0, shared)
    return found + list(mains.values())
