# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# outcome = "healthy"
# source = "https://github.com/lifeiteng/vall-e/pull/95"
# ///
"""Uneven shards trained under the join context; one shard is six times longer than the others."""
import logging
import time
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("join")


@dataclass
class ShardPlan:
    base: int = 40
    long_factor: int = 6
    pace: float = 0.045

    def batches(self, rank: int) -> int:
        return self.base * self.long_factor if rank == 2 else self.base + 7 * rank


class Reader:
    def __init__(self, plan: ShardPlan, rank: int):
        self.plan, self.rank = plan, rank
        self.g = torch.Generator().manual_seed(rank)

    def __iter__(self):
        for _ in range(self.plan.batches(self.rank)):
            time.sleep(self.plan.pace)
            x = torch.randn(8, 10, generator=self.g)
            yield x, x[:, :2].sum(1, keepdim=True)


class Trainer:
    def __init__(self, plan):
        torch.manual_seed(0)
        self.model = DDP(nn.Sequential(nn.Linear(10, 24), nn.ReLU(), nn.Linear(24, 1)))
        self.opt = ZeroRedundancyOptimizer(self.model.parameters(), optimizer_class=torch.optim.SGD, lr=0.01)
        self.reader = Reader(plan, dist.get_rank())
        self.steps = 0

    def epoch(self):
        with Join([self.model, self.opt]):
            for x, y in self.reader:
                self.opt.zero_grad()
                nn.functional.mse_loss(self.model(x), y).backward()
                self.opt.step()
                self.steps += 1
        log.info("rank %d trained %d batches", dist.get_rank(), self.steps)


def main():
    logging.basicConfig(level=logging.INFO)
    dist.init_process_group("gloo")
    trainer = Trainer(ShardPlan())
    trainer.epoch()
    total = torch.tensor([float(trainer.steps)])
    dist.all_reduce(total)
    if dist.get_rank() == 0:
        log.info("%d batches in all", int(total))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
