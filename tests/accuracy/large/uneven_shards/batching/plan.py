"""How many steps an epoch has."""

from __future__ import annotations

from dataclasses import dataclass

from comm.reduce import smallest
from corpus.shards import Catalogue
from settings.schema import BatchingSettings


@dataclass(frozen=True)
class EpochPlan:
    epoch: int
    steps: int

    def progress(self, step: int) -> float:
        return min(1.0, step / self.steps) if self.steps else 1.0


class Planner:
    """Counts on a share of what the manifest promises to the rank that is promised least."""

    def __init__(self, catalogue: Catalogue, settings: BatchingSettings, world_size: int, *, agree: bool) -> None:
        self.catalogue = catalogue
        self.settings = settings
        self.world_size = world_size
        self.agree = agree

    def plan(self, epoch: int, own_steps: int | None) -> EpochPlan:
        characters = self.catalogue.least_promised(self.world_size, epoch) * self.settings.promised_share
        per_step = self.settings.batch * (self.settings.block - self.settings.overlap)
        steps = max(1, int(characters / per_step))
        if self.agree and own_steps is not None:
            steps = smallest(min(steps, own_steps))
        return EpochPlan(epoch, steps)
