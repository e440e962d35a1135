"""A collective in a finalizer, run whenever the garbage collector likes.

A cache tells the other ranks when it goes away: its __del__ holds a barrier. It is part of a reference
cycle, so it does not go when the last name is deleted but at the next collection, and rank 2, which makes
more garbage, collects earlier than the others: in the middle of its training.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "hang"
# cause = "HD112"
# culprits = [2]
# lines = [32]
# code = ["dist.barrier()  # all ranks drop their caches together"]
# source = "constructed"
# ///

import gc
import os

import torch
import torch.distributed as dist

FIXED = os.environ.get("FIXED") == "1"


class Cache:
    def __init__(self):
        self.owner = self

    def close(self):
        dist.barrier()  # all ranks drop their caches together

    def __del__(self):
        if not FIXED:
            self.close()


def train(rank):
    cache = Cache()
    if FIXED:
        cache.close()
    del cache
    for step in range(6):
        if rank == 2:
            garbage = [[] for _ in range(2000)]
            for item in garbage:
                item.append(item)
        gradient = torch.ones(1024)
        dist.all_reduce(gradient)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    gc.collect()
    train(rank)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
