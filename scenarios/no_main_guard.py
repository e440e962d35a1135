"""A DataLoader worker runs the whole script again and joins as a second rank 0.

Rank 0 loads the batches and broadcasts them. Its DataLoader worker is started with "spawn", which imports
the script; without a main guard the import runs all of it. The worker has its parent's RANK in its
environment, joins the group as another rank 0 and waits in the first barrier, which the others have left
long ago. Rank 0 waits for its batch and rank 1 for rank 0.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 2"
# watch = "--give-up-after 8"
# outcome = "hang"
# cause = "HD306"
# culprits = [0]
# lines = [34, 39]
# code = ["yield from loader", "dist.barrier()"]
# source = "constructed"
# ///

import os

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

FIXED = os.environ.get("FIXED") == "1"


def batches(rank):
    if rank != 0:
        yield from (torch.zeros(2, dtype=torch.long) for _ in range(4))
        return
    loader = DataLoader(range(8), batch_size=2, num_workers=1, multiprocessing_context="spawn")
    yield from loader


def train():
    dist.init_process_group("gloo")
    dist.barrier()
    for batch in batches(dist.get_rank()):
        dist.broadcast(batch, src=0)
    dist.destroy_process_group()


if __name__ == "__main__" or not FIXED:
    torch.set_num_threads(1)
    train()
