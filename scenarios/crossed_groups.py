"""Two groups, used in opposite order by one rank.

Every rank averages over two process groups with the same members. Rank 2 gets its tasks from a set, in
another order than the others, and begins with the second group. Each call is right and each is issued once
by everybody; only the order is not the same, so two ranks wait for rank 2 in the first group while rank 2
waits for them in the second.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "hang"
# cause = "HD107"
# culprits = [2]
# lines = [30]
# code = ["dist.all_reduce(value, group=groups[task])"]
# source = "constructed"
# ///

import os

import torch
import torch.distributed as dist

FIXED = os.environ.get("FIXED") == "1"


def average(tasks, groups):
    for task in tasks:
        value = torch.ones(4)
        dist.all_reduce(value, group=groups[task])


def order(rank, step):
    tasks = ["actor", "critic"]
    if (rank, step) == (2, 4) and not FIXED:
        tasks.reverse()
    return tasks


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    groups = {"actor": dist.new_group(), "critic": dist.new_group()}
    for step in range(8):
        average(order(rank, step), groups)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
