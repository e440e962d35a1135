"""Jobs on gloo of which one rank is aborted: ``aborted.py MODE``. Rank 1 skips a backward pass, makes a call too many,
or gives one a tensor of another size."""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 6


def batch(step: int, broken: bool) -> torch.Tensor:
    values = torch.full((4, 64), 1.0 + step)
    return values * float("nan") if broken and step == 3 else values


def skips(rank: int) -> None:
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(64, 64))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(STEPS):
        loss = model(batch(step, rank == 1)).pow(2).mean()
        if torch.isfinite(loss):
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        dist.all_reduce(loss.detach().clone())


def makes_more(rank: int) -> None:
    lost = torch.zeros(1)
    for step in range(STEPS):
        if not batch(step, rank == 1).isfinite().all():
            lost += 1
            dist.all_reduce(lost)
        dist.all_reduce(torch.ones(1000))


def makes_larger(rank: int) -> None:
    for step in range(STEPS):
        if not batch(step, rank == 1).isfinite().all():
            dist.all_reduce(torch.ones(1000))  # too many
        dist.all_reduce(torch.zeros(1))


def sizes(rank: int) -> None:
    for _ in range(STEPS):
        dist.all_reduce(torch.ones(4 if rank == 1 else 64))


if __name__ == "__main__":
    dist.init_process_group("gloo")
    globals()[sys.argv[1]](dist.get_rank())
    dist.destroy_process_group()
