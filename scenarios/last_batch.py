"""The last batch is smaller on one rank, and all_gather wants equal shapes.

Every rank gathers the predictions of all ranks. The data does not divide by the number of ranks: the last
batch of rank 2 has five samples instead of eight. all_gather needs the same shape everywhere and does not
check it: gloo aborts the rank that receives more than it has room for, and the others lose a peer.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "crashed"
# cause = "HD104"
# culprits = [2]
# lines = [36]
# code = ["dist.all_gather(parts, predictions)"]
# source = "constructed"
# ///

import os

import torch
import torch.distributed as dist

FIXED = os.environ.get("FIXED") == "1"


def batches(rank):
    samples = torch.arange(40 if rank != 2 else 37, dtype=torch.float32)
    return samples.split(8)[: 4 if FIXED else 5]


def evaluate(rank, world_size):
    seen = 0
    for batch in batches(rank):
        predictions = batch.sqrt()
        parts = [torch.empty_like(predictions) for _ in range(world_size)]
        dist.all_gather(parts, predictions)
        seen += sum(len(part) for part in parts)
    return seen


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    evaluate(rank, dist.get_world_size())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
