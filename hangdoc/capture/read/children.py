"""The processes below a rank: DataLoader workers, compilers, subprocesses."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from hangdoc.capture.read import procfs
from hangdoc.capture.safe.text import clean, read_link

_MAX_CHILDREN = 64
"""Of one rank, at any depth. Judgement."""
_OF_A_JOB = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""The variables by which torch's env:// finds its job: a child that has them joins the job of its parent."""
_COMPILERS = {
    *("cc", "c++", "gcc", "g++", "cc1", "cc1plus", "clang", "clang++", "as", "ld", "ld.lld", "collect2"),
    *(
        "nvcc",
        "cicc",
        "cudafe++",
        "ptxas",
        "fatbinary",
        "nvlink",
        "hipcc",
        "ninja",
        "make",
        "rustc",
        "triton",
    ),
}


@dataclass(frozen=True, slots=True)
class Subject:
    """A process to look at. ``children`` oldest first."""

    pid: int
    ppid: int
    role: str
    comm: str
    argv: tuple[str, ...]
    started: float
    """Unix time in seconds."""
    children: tuple[Subject, ...] = ()
    cwd: str = ""
    environment: tuple[tuple[str, str], ...] = ()

    def family(self) -> Iterator[Subject]:
        """This process and all below it."""
        yield self
        for child in self.children:
            yield from child.family()


def subject(pid: int, role: str, processes: Mapping[int, procfs.Stat], others: Collection[int] = ()) -> Subject:
    """The process with the processes below it, without the families of ``others`` (ranks of their own).

    A process that is gone gives a subject without comm, arguments and children.
    """
    entry = processes.get(pid)
    if entry is None:
        return Subject(pid, 0, role, "", (), 0.0)
    below: dict[int, list[procfs.Stat]] = {}
    for process in processes.values():
        below.setdefault(process.ppid, []).append(process)
    budget = iter(range(_MAX_CHILDREN))
    return _build(entry, role, below, frozenset(others), budget)


def role_of(comm: str, argv: tuple[str, ...]) -> str:
    """'dataloader-worker', 'compiler' or 'child', from the process's name and command line.

    torch names its forked DataLoader workers ``pt_data_worker`` (2.1 and newer).
    """
    if comm == "pt_data_worker":
        return "dataloader-worker"
    if comm in _COMPILERS or any("_inductor/compile_worker" in word for word in argv[:4]):
        return "compiler"
    return "child"


def _build(
    entry: procfs.Stat,
    role: str,
    below: Mapping[int, list[procfs.Stat]],
    others: frozenset[int],
    budget: Iterator[int],
) -> Subject:
    children = []
    for child in sorted(below.get(entry.pid, ()), key=lambda child: (child.started, child.pid)):
        if child.pid in others or next(budget, None) is None:
            continue
        child_role = role_of(child.comm, procfs.argv(child.pid))
        children.append(_build(child, child_role, below, others, budget))
    return Subject(
        pid=entry.pid,
        ppid=entry.ppid,
        role=role,
        comm=entry.comm,
        argv=procfs.argv(entry.pid),
        started=procfs.start_time(entry),
        children=tuple(children),
        cwd=_working_directory(entry.pid),
        environment=_job_variables(entry.pid) if role == "child" else (),
    )


def _job_variables(pid: int) -> tuple[tuple[str, str], ...]:
    known = procfs.environment(pid) or {}
    return tuple((name, known[name]) for name in _OF_A_JOB if name in known)


def _working_directory(pid: int) -> str:
    """'' where it may not be read, or was deleted: then no file lies below it."""
    found = read_link(f"/proc/{pid}/cwd") or ""
    return "" if found.endswith(" (deleted)") else clean(found, 4096)
