# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# outcome = "hang"
# cause = "HD202"
# culprits = [2]
# lines = [41, 49, 61]
# branch = ["budget", "microbatches", "MEMORY"]
# source = "https://github.com/pytorch/torchtitan/issues/775"
# ///
"""Four pipeline stages under torch.distributed.pipelining; each rank works out by itself into how many micro-batches to cut,
from the memory it thinks it has. The third stage finds less and cuts finer: it waits for micro-batches that never come."""
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

MEMORY = {0: 64, 1: 64, 2: 24, 3: 64}
ROWS = 4


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


class Planner:
    """Chooses the number of micro-batches that fit."""

    def __init__(self, rank):
        self.budget = MEMORY[rank]

    def microbatches(self):
        count = 2
        while 96 // count > self.budget:
            count *= 2
        return count


class Worker:
    def __init__(self):
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        count = Planner(self.rank).microbatches()
        self.count, example = count, torch.zeros(ROWS, 16, requires_grad=True)
        stage = PipelineStage(Block(16), self.rank, self.world, torch.device("cpu"), input_args=(example,), output_args=(example,))
        self.schedule = ScheduleGPipe(stage, n_microbatches=count, loss_fn=nn.functional.mse_loss)

    def step(self):
        batch, target = torch.randn(ROWS * self.count, 16), torch.zeros(ROWS * self.count, 16)
        if self.rank == 0:
            self.schedule.step(batch)
        elif self.rank == self.world - 1:
            self.schedule.step(target=target)
        else:
            self.schedule.step()


def main():
    dist.init_process_group("gloo")
    worker = Worker()
    for _ in range(5):
        worker.step()
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
