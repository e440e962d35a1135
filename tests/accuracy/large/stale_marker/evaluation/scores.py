"""Errors on the windows that were kept back, of all ranks together."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

import torch
from torch import nn

from cluster.world import World
from feed.batches import Batches
from learning.stages import Stage
from settings.ini import Configuration

LOG = logging.getLogger("forecast.scores")


@dataclass(frozen=True)
class Scores:
    error: float
    skill: float
    """How much better than the last known value, from 1 down."""
    coverage: dict[float, float] = field(default_factory=dict)


@torch.no_grad()
def evaluate(model: nn.Module, stage: Stage, batches: Batches, configuration: Configuration, world: World) -> Scores:
    model.eval()
    levels = [float(word) for word in configuration.words("evaluation", "quantiles")]
    errors, naive, limits = [], [], []
    for batch in batches.for_evaluation():
        forecast = model(batch.known, stage.horizon)
        errors.append((forecast - batch.future).abs().mean(dim=(1, 2)))
        naive.append((batch.known[:, -1:] - batch.future).abs().mean(dim=(1, 2)))
        limits.append(batch.future.abs().amax(dim=(1, 2)))
    if not errors:
        own, plain, reach = torch.zeros(0), torch.zeros(0), torch.zeros(0)
    else:
        own, plain, reach = torch.cat(errors), torch.cat(naive), torch.cat(limits)
    wild = int((reach > 6).sum())
    if wild * 10 > len(own):
        LOG.info("%d of %d windows are wild on rank %d", wild, len(own), world.rank)
    sums = torch.tensor([float(own.sum()), float(plain.sum()), float(len(own))], dtype=torch.float64)
    inside = [float((own <= level).sum()) for level in levels]
    everything = world.total(torch.cat((sums, torch.tensor(inside, dtype=torch.float64))))
    count = max(1.0, float(everything[2]))
    error, reference = float(everything[0]) / count, float(everything[1]) / count
    if len(own) and float(own.mean()) > 2 * error:
        LOG.info("rank %d is much worse than the others", world.rank)
    coverage = {level: float(everything[3 + place]) / count for place, level in enumerate(levels)}
    return Scores(error, 1 - error / reference if reference > 0 else 0.0, coverage)
