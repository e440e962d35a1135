"""Every rank names another root: broadcast(src=local rank).

The root of a broadcast is a global rank and the same for all. Here each rank passes the first rank of what
it takes for its host, computed from a wrong number of ranks per host, so rank 2 waits for itself as a root
while ranks 0 and 1 expect the data from rank 0. All stand in the same line of the same call.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "hang"
# cause = "HD105"
# culprits = [2]
# lines = [29]
# code = ["dist.broadcast(weights, src=root)"]
# source = "constructed"
# ///

import os

import torch
import torch.distributed as dist

FIXED = os.environ.get("FIXED") == "1"
RANKS_PER_HOST = 3 if FIXED else 2


def share(weights, rank):
    root = rank // RANKS_PER_HOST * RANKS_PER_HOST
    dist.broadcast(weights, src=root)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    weights = torch.full((1024, 64), float(rank))
    dist.all_reduce(weights)
    share(weights, rank)
    dist.all_reduce(weights)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
