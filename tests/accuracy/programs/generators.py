"""A generator that is not exhausted keeps its last collective.

Batches come from a generator that tells the others how much it yielded, behind its last batch. Rank 0 stops
early, with islice, so the code behind the yield never runs there.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "hang"
# culprits = [0]
# lines = [29]
# code = ["dist.all_reduce(total)"]
# source = "constructed"
# ///

import itertools
import os

import torch
import torch.distributed as dist

FIXED = os.environ.get("FIXED") == "1"


def batches(count):
    for number in range(count):
        yield torch.full((4,), float(number))
    total = torch.tensor(count)
    dist.all_reduce(total)


def epoch(rank, number):
    source = batches(6)
    if (rank, number) == (0, 2) and not FIXED:
        source = itertools.islice(source, 6)
    seen = 0
    for batch in source:
        seen += len(batch)
    return seen


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for number in range(4):
        epoch(rank, number)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
