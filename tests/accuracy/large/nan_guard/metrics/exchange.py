"""The steps of all ranks, side by side."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist


@dataclass(frozen=True)
class StepRow:
    rank: int
    loss: float
    seconds: float
    samples: int
    vetoed: bool


def gather_steps(state, world):
    """One row a rank, in the order of the ranks."""
    own = torch.tensor([state.loss, state.seconds, float(state.samples), float(state.vetoed)])
    if world.alone:
        return [row_of(0, own)]
    found = [torch.empty_like(own) for _ in range(world.size)]
    dist.all_gather(found, own)
    return [row_of(rank, values) for rank, values in enumerate(found)]


def row_of(rank, values):
    loss, seconds, samples, vetoed = values.tolist()
    return StepRow(rank, loss, seconds, int(samples), bool(vetoed))
