"""new_group() is called by the members of the group only.

Ranks 0 and 1 make a group for the two of them, without rank 2, which will not be a member. new_group is a
collective of the whole job, and groups are matched by how many were made before. Nothing hangs until all
three make a group together: for ranks 0 and 1 it is their second, for rank 2 its first, and they do not
find each other.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "hang"
# cause = "HD303"
# culprits = [2]
# lines = [29]
# code = ["return dist.new_group(members)"]
# source = "constructed"
# ///

import os

import torch
import torch.distributed as dist

FIXED = os.environ.get("FIXED") == "1"


def pair_group(rank, members):
    if rank in members or FIXED:
        return dist.new_group(members)
    return None


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    dist.all_reduce(torch.ones(4))
    pair = pair_group(rank, [0, 1])
    if rank in (0, 1):
        dist.all_reduce(torch.ones(4), group=pair)
    metrics = dist.new_group()
    dist.all_reduce(torch.ones(4), group=metrics)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
