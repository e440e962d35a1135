"""One line about a job, for those who look for theirs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class JobSummary:
    """A job of this machine as a list shows it."""

    pid: int
    """Of its launcher, or of its first rank: what to attach to."""
    launcher: str
    """'torchrun', 'accelerate', 'lightning', 'mpirun', 'slurm', 'spawn', 'ray', 'environment', …"""
    command: tuple[str, ...]
    user: str
    since: float
    """Unix time at which its oldest process started."""
    ranks: tuple[int, ...]
    """Those with a process here."""
    missing: tuple[int, ...] = ()
    """Those that were promised and that nobody carries."""
    moving: int = 0
    """How many ranks used CPU time or changed context between two looks a moment apart."""
    readable: bool = True
    """False: another user's; nothing but its launcher can be seen."""
