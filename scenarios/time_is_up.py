"""A rank whose time is up shuts the process group down while the others still use it.

Every rank looks at its own clock before each step. The clock of rank 1 is ahead: it leaves the loop, waits
for the others in the barrier in front of destroy_process_group, as it should, and is the only one there.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "hang"
# cause = "HD702"
# culprits = [1]
# lines = [39, 33]
# code = ["if out_of_time(rank, step):", "dist.barrier()"]
# source = "constructed"
# ///

import os

import torch
import torch.distributed as dist

FIXED = os.environ.get("FIXED") == "1"


def out_of_time(rank, step):
    up = torch.tensor(float(rank == 1 and step >= 5))
    if FIXED:
        dist.all_reduce(up, op=dist.ReduceOp.MAX)
    return bool(up)


def shut_down():
    dist.barrier()
    dist.destroy_process_group()


def train(rank):
    for step in range(10):
        if out_of_time(rank, step):
            shut_down()
            return
        dist.all_reduce(torch.ones(64))
    shut_down()


def main():
    dist.init_process_group("gloo")
    train(dist.get_rank())


if __name__ == "__main__":
    main()
