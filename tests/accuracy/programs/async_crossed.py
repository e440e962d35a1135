"""Two groups that the ranks use in opposite order, asynchronously, and a call that one of them skips.

Both calls are issued before either is waited for, so that their order across the groups is no fault. What hangs the job
is the barrier behind the loop, which rank 1 returns before.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "hang"
# cause = "HD101"
# culprits = [1]
# lines = [35]
# code = ["dist.all_reduce(torch.ones(16), async_op=True).wait()"]
# source = "constructed"
# ///

import os

import torch
import torch.distributed as dist

FIXED = os.environ.get("FIXED") == "1"


def exchange(rank, first, second):
    groups = (first, second) if rank else (second, first)
    handles = [dist.all_reduce(torch.ones(4), group=group, async_op=True) for group in groups]
    for handle in handles:
        handle.wait()


def evaluate(rank, first, second):
    if rank == 1 and not FIXED:
        return
    dist.all_reduce(torch.ones(16), async_op=True).wait()


def train(rank):
    first, second = dist.new_group([0, 1, 2]), dist.new_group([0, 1, 2])
    for step in range(6):
        exchange(rank, first, second)
        if step == 3:
            evaluate(rank, first, second)
    dist.barrier()


def main():
    dist.init_process_group("gloo")
    train(dist.get_rank())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
