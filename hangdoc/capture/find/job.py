"""A distributed job on this machine: its launcher and its ranks."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from hangdoc.capture.find.process_table import ProcessTable
from hangdoc.capture.find.promised import absent
from hangdoc.capture.find.target import RankTarget, host_name
from hangdoc.capture.read import procfs
from hangdoc.model.snapshot import Unavailable

_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "fish", "ksh", "csh", "tcsh", "busybox", "su", "sudo", "login"})
LAUNCHER_NAMES = frozenset({"pt_elastic", "mpirun", "mpiexec", "prterun", "orterun", "prted", "orted"})
"""Names of processes that only start ranks; in a container one may be the first process."""
_MANAGERS = frozenset({"tmux", "tmux: server", "screen", "sshd", "systemd", "init", "supervisord", "containerd-shim"})


@dataclass(frozen=True)
class Job:
    """A distributed job. ``root`` is its launcher's pid; None: it has none, or the launcher is gone."""

    launcher: str
    """'torchrun', 'accelerate', 'lightning', 'mpirun', 'mpich', 'slurm', 'spawn', 'environment', 'ray', 'python', …"""
    root: int | None
    targets: tuple[RankTarget, ...]
    """Sorted by rank; those that the world size counts and that have no process have no pid."""
    inside: frozenset[int] = frozenset()
    """The ranks' processes and the wrappers that carry them."""
    notes: tuple[Unavailable, ...] = ()
    """What could not be found out about its ranks."""

    @property
    def pids(self) -> tuple[int, ...]:
        """The ranks' processes."""
        return tuple(target.pid for target in self.targets if target.pid is not None)


def unlabelled_targets(
    table: ProcessTable, ranks: Mapping[int, int], identity: str, *, world: int | None = None, complete: bool = True
) -> tuple[RankTarget, ...]:
    """Targets for ranks (pid to rank) that no variable names. ``complete``: no other machine has ranks of the job."""
    host = host_name()
    targets = [
        RankTarget(
            rank=rank,
            pid=pid,
            identity=identity,
            world_size=world,
            host=host,
            socket=probe_socket(table, pid),
            environment=tuple(sorted(table[pid].variables.items())),
        )
        for pid, rank in ranks.items()
    ]
    missing = absent(targets, host) if complete and world is not None else []
    return tuple(sorted([*targets, *missing], key=lambda target: target.rank))


def probe_socket(table: ProcessTable, pid: int) -> Path | None:
    """The probe's socket of a rank that was started under `hangdoc watch`."""
    folder = table[pid].variables.get("HANGDOC_PROBE", "")
    if not folder.startswith("/"):
        return None
    own = procfs.namespace_pid(pid, pid)
    for base in ("", f"/proc/{pid}/root"):
        path = Path(f"{base}{folder}/{own}.sock")
        if os.path.exists(path):  # noqa: PTH110 - answers for what may not be read, too
            return path
    return None


def common_parent(table: ProcessTable, parents: Iterable[int]) -> int | None:
    """The one process that started all ranks, unless it is a shell at a prompt, a manager that
    starts anything or what hangdoc itself runs under."""
    different = set(parents)
    parent = min(different, default=1)
    if len(different) != 1 or parent not in table or parent in (os.getpid(), *table.ancestors(os.getpid())):
        return None
    entry = table[parent]
    if parent == 1 and entry.comm not in LAUNCHER_NAMES:
        return None
    at_prompt = entry.comm in _SHELLS and not any(not word.startswith("-") for word in entry.argv[1:])
    return None if at_prompt or entry.comm in _MANAGERS else parent
