"""Two arms of one condition, two different collectives.

A metric is either averaged or collected, depending on whether it is a number on this rank. On rank 1 the
last value is not finite, and it gathers the values to look at them while the others average.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "hang"
# cause = "HD106"
# culprits = [1]
# lines = [33]
# code = ["dist.all_gather(values, value)"]
# source = "constructed"
# ///

import os

import torch
import torch.distributed as dist

FIXED = os.environ.get("FIXED") == "1"


def summarize(value):
    finite = torch.isfinite(value).float()
    if FIXED:
        dist.all_reduce(finite, op=dist.ReduceOp.MIN)
    if finite.item():
        dist.all_reduce(value)
    else:
        values = [torch.zeros(1) for _ in range(dist.get_world_size())]
        dist.all_gather(values, value)
        value = torch.stack(values).nanmean()
    return value


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for step in range(6):
        loss = torch.tensor([float(step)])
        if (rank, step) == (1, 5):
            loss = loss / 0 * 0
        summarize(loss)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
