# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "hang"
# causes_any = ["HD103"]
# culprits = [2]
# lines = [43, 54, 78, 86, 87, 91]
# branch = ["except", "out of memory", "MemoryError", "OutOfMemory"]
# source = "https://github.com/Lightning-AI/pytorch-lightning/issues/8531"
# ///
"""A step that runs out of memory is dropped: the exception is caught, the gradients are thrown away and the next batch is taken.
It happens on one rank (its batch holds the longest document), inside a sharded model."""
import logging
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

log = logging.getLogger("pretrain")


@dataclass
class Config:
    hidden: int = 16
    depth: int = 3
    steps: int = 25
    memory_rows: int = 60


class OutOfMemory(RuntimeError):
    pass


class Allocator:
    """Stands for the device's memory."""

    def __init__(self, rows):
        self.rows = rows

    def reserve(self, x):
        if x.shape[0] > self.rows:
            raise OutOfMemory(f"out of memory: tried to allocate {x.shape[0]} rows")


class Block(nn.Module):
    def __init__(self, cfg, allocator=None):
        super().__init__()
        self.up, self.down = nn.Linear(cfg.hidden, 32), nn.Linear(32, cfg.hidden)
        self.allocator = allocator

    def forward(self, x):
        if self.allocator:
            self.allocator.reserve(x)
        return x + self.down(torch.relu(self.up(x)))


class Documents:
    def __init__(self, rank):
        self.rank = rank

    def batch(self, step, width):
        rows = 90 if (self.rank, step) == (2, 7) else 8 + step % 3
        return torch.randn(rows, width)


class Pretrainer:
    def __init__(self, cfg):
        self.cfg, self.rank = cfg, dist.get_rank()
        blocks = [Block(cfg), Block(cfg, Allocator(cfg.memory_rows)), Block(cfg)]
        for block in blocks:
            fully_shard(block)
        self.model = fully_shard(nn.Sequential(*blocks))
        self.opt = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.data, self.skipped = Documents(self.rank), 0

    def forward_backward(self, x):
        loss = self.model(x).mean()
        loss.backward()
        return loss.item()

    def run(self):
        for step in range(self.cfg.steps):
            x = self.data.batch(step, self.cfg.hidden)
            try:
                self.forward_backward(x)
            except OutOfMemory as error:
                log.warning("step %d skipped: %s", step, error)
                self.skipped += 1
                self.opt.zero_grad()
                continue
            self.opt.step()
            self.opt.zero_grad()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    Pretrainer(Config()).run()
    dist.destroy_process_group()
