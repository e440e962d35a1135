"""Uneven inputs under Join: rank 1 has far fewer batches and shadows the collectives of the other.

Halfway rank 0 needs eight seconds for one batch, so that the job also stands still with rank 1 inside Join.
"""

import os
import time

import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

SLOW_SECONDS = float(os.environ.get("PAUSE", "8"))


def slow_batch(seconds):
    end = time.monotonic() + seconds
    total = 0
    while time.monotonic() < end:
        total += 1
    return torch.ones(4, 6)


dist.init_process_group("gloo")
rank = dist.get_rank()
model = DistributedDataParallel(torch.nn.Linear(6, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
with Join([model]):
    for number in range(10 if rank == 0 else 3):
        batch = slow_batch(SLOW_SECONDS) if number == 6 else torch.ones(4, 6)
        loss = model(batch).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
dist.barrier()
if rank == 0:
    print("well ended")
dist.destroy_process_group()
