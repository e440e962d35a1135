"""torch.compile and a functional collective: a rank without valid tokens leaves its loss out.

The collective is in the compiled graph of `average`. Rank 1 gets a batch in which every token is padding, leaves
the average out and waits for the step's learning rate.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# env = {TORCHINDUCTOR_COMPILE_THREADS = 1}
# timeout = 400
# outcome = "hang"
# cause = "HD101"
# culprits = [1]
# lines = [31, 48]
# code = ["return functional.all_reduce(mean, \"sum\", dist.group.WORLD)", "total += average(batch[valid])"]
# source = "constructed"
# ///

import os

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

FIXED = os.environ.get("FIXED") == "1"


@torch.compile
def average(values):
    mean = (values * values).mean()
    return functional.all_reduce(mean, "sum", dist.group.WORLD)


def batches(rank):
    for number in range(6):
        batch = torch.ones(8)
        batch[4:] = 0
        if number == 3 and rank == 1 and not FIXED:
            batch[:] = 0
        yield batch


def epoch(rank):
    total, rate = torch.zeros(()), torch.ones(1)
    for batch in batches(rank):
        valid = batch > 0
        if valid.any():
            total += average(batch[valid])
        dist.broadcast(rate, src=0)
    return total


def main():
    dist.init_process_group("gloo")
    epoch(dist.get_rank())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
