# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "healthy"
# source = "https://github.com/pytorch/pytorch/pull/42577"
# ///
"""Uneven inputs under Join with a sharded optimizer: the rank with more batches is slow and the three others shadow its reductions."""
import time
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP


@dataclass
class Work:
    short: int = 4
    long: int = 11
    pause: float = 2.5


class Batches:
    def __init__(self, work, rank):
        self.work, self.rank = work, rank

    def __iter__(self):
        for i in range(self.work.long if self.rank == 1 else self.work.short):
            if i >= self.work.short:
                time.sleep(self.work.pause)
            yield torch.randn(4, 6)


class Training:
    def __init__(self, work):
        self.batches = Batches(work, dist.get_rank())
        self.model = DDP(nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 1)))
        self.optimizer = ZeroRedundancyOptimizer(self.model.parameters(), torch.optim.Adam, lr=1e-3)

    def run(self):
        with Join([self.model, self.optimizer]):
            for x in self.batches:
                self.optimizer.zero_grad()
                self.model(x).sum().backward()
                self.optimizer.step()


def main():
    dist.init_process_group("gloo")
    Training(Work()).run()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
