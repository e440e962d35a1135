"""A step that fails between issuing and waiting.

Rank 1 meets a bad batch after it has issued the first of two asynchronous calls of the step. It skips the batch, and
with it the second call, and never waits for the first. The others wait in their last step.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "hang"
# cause = "HD103"
# culprits = [1]
# lines = [30]
# code = ["second = dist.all_reduce(batch, async_op=True)"]
# source = "constructed"
# ///

import os

import torch
import torch.distributed as dist

FIXED = os.environ.get("FIXED") == "1"


def step_of(rank, step):
    first = dist.all_reduce(torch.ones(4), async_op=True)
    batch = torch.full((4,), float(step))
    if rank == 1 and step == 2 and not FIXED:
        raise ValueError("a bad batch")
    second = dist.all_reduce(batch, async_op=True)
    first.wait()
    second.wait()


def train(rank):
    for step in range(5):
        try:
            step_of(rank, step)
        except ValueError:
            continue
    dist.barrier()


def main():
    dist.init_process_group("gloo")
    train(dist.get_rank())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
