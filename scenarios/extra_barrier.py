"""Rank 0 writes an index and waits in a barrier of its own.

Four ranks export a model in shards, with a barrier after each one. After the third shard rank 0 alone
writes the index, and write_index() ends in a barrier too. That barrier pairs with the one the others issue
after the fourth shard, so nothing stops: from there on rank 0 is simply one barrier ahead. The job hangs
four shards later, with rank 0 in a perfectly innocent barrier and everybody else in the all_reduce behind
the loop. No stack shows the guilty line.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "hang"
# cause = "HD101"
# culprits = [0]
# lines = [32]
# code = ["dist.barrier()"]
# source = "https://github.com/pytorch/pytorch/issues/54059"
# ///

import os

import torch
import torch.distributed as dist

FIXED = os.environ.get("FIXED") == "1"
SHARDS = 8


def write_index(shards):
    index = {f"shard-{number}": number * 1024 for number in range(shards)}
    assert len(index) == shards
    dist.barrier()


def export(rank):
    for shard in range(SHARDS):
        torch.full((256,), float(shard)).sum()
        if shard == 2 and (rank == 0 or FIXED):
            write_index(shard + 1)
        dist.barrier()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    export(rank)
    written = torch.tensor([SHARDS])
    dist.all_reduce(written)
    if rank == 0:
        print(f"{int(written)} shards written")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
