"""What a watch wants of its meeting: set by the watch's thread, read by the meeting's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from hangdoc.capture.find.target import RankTarget
from hangdoc.model.launch import meets_on_loopback, number, on_many_hosts, on_one_host
from hangdoc.sidecar.meeting.records import CALM_SECONDS, Verdict

_STARTED_AS_RANK = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK")
SILENT_BEATS = 2.4
"""Without a new one for so many times as long as a watch may be calm: two are missing. Judgement."""
SILENT_SECONDS = SILENT_BEATS * CALM_SECONDS
"""The same of usual beats, and of the lead's."""
MANY_HOSTS = 200
"""More than those beat at intervals of ``CALM_OF_MANY_SECONDS``, so that they cost the lead no more. Judgement."""
CALM_OF_MANY_SECONDS = 10.0
FEW_HOSTS = 8
"""Other hosts that are asked for whole snapshots: one question instead of two, and every time is a rank's own. All of
them together take no more than ``FEW_HOSTS`` times ``MOST_PARTS`` values. More hosts send digests. Judgement."""
CALM_LEAD_SECONDS = 2.5
"""Between two looks of the lead at all beats while its own ranks move. Judgement."""
MOST_PARTS = 8
"""Values of the store that one host's snapshot may take: 32 MiB. Eight ranks' histories take about 2. Judgement."""


@dataclass(frozen=True)  # without slots, which would leave no place to keep what is computed
class Standing:
    """How the watch's own ranks are, ``at`` a moment. ``still``: seconds since they moved; None while they move."""

    targets: tuple[RankTarget, ...] = ()
    """The ranks at the last search, also those that are only expected."""
    still: float | None = None
    at: float = 0.0

    @cached_property
    def ranks(self) -> tuple[int, ...]:
        """The ranks that run here."""
        return tuple(sorted({target.rank for target in self.targets if target.pid is not None}))

    @cached_property
    def world(self) -> int:
        """The size of the job; 0 where it is not known."""
        return max((target.world_size or 0 for target in self.targets), default=0)

    def has_ranks_elsewhere(self, own: Mapping[str, str]) -> bool:
        """True if other watches may see ranks that this one does not. ``own``: the watch's own environment.

        Ranks of a job on one host that have not been started yet, or have died, are not elsewhere. So the launcher must
        name other hosts, or this watch has itself been started as one of many.
        """
        if not 0 < len(self.ranks) < self.world:
            return False
        environments = [dict(target.environment) for target in self.targets if target.pid is not None]
        if any(map(on_one_host, environments)):
            return False
        started = any(name in own for name in _STARTED_AS_RANK) or (number(own.get("SLURM_NTASKS")) or 1) > 1
        return started or any(_reaches_out(environment, self.world) for environment in environments)


def _reaches_out(environment: Mapping[str, str], world: int) -> bool:
    if on_many_hosts(environment, world):
        return True
    return bool(environment.get("MASTER_ADDR")) and not meets_on_loopback(environment)


@dataclass(frozen=True, slots=True)
class Wishes:
    """All that a watch wants. Of a lead: ``round``, whom it asks then, and the verdict. Of a member: ``answer``."""

    standing: Standing = field(default_factory=Standing)
    round: int = 0
    asked: tuple[str, ...] = ()
    pieces: Mapping[str, tuple[str, ...]] | None = None
    """Member → the pieces that it is asked for, where it is not a snapshot that they are asked for."""
    verdict: Verdict | None = None
    answer: tuple[int, bytes] | None = None
    """(round, packed snapshot or digest)."""
    known: Callable[[Sequence[str]], bytes] | None = None
    """Gives the pieces that the digest has left out."""
    end: bytes | None = None
    """The packed snapshot, or digest, of how the ranks ended; empty where nothing failed. Not None: the command has
    ended."""
