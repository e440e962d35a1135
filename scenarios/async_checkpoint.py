"""A checkpoint thread communicates on the group of the training.

A background thread gathers the sizes of the shards for a checkpoint while the training goes on, and both
use the default group. The operations of a group are matched by their order, and nothing orders two threads:
on rank 0, where the thread also has to make a folder first, the training is ahead of it, on the others it
is behind.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "hang"
# cause = "HD108"
# lines = [33, 40]
# code = ["dist.all_gather(sizes, size, group=group)", "dist.all_reduce(gradient)"]
# source = "constructed"
# ///

import os
import threading
import time

import torch
import torch.distributed as dist

FIXED = os.environ.get("FIXED") == "1"


def save(rank, group):
    if rank == 0:
        time.sleep(0.5)  # makes the folder
    size = torch.tensor([rank + 1])
    sizes = [torch.zeros_like(size) for _ in range(dist.get_world_size())]
    dist.all_gather(sizes, size, group=group)


def train(steps):
    for _ in range(steps):
        time.sleep(0.2)
        gradient = torch.ones(256)
        dist.all_reduce(gradient)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    group = dist.new_group() if FIXED else None
    train(3)
    writer = threading.Thread(target=save, args=(rank, group), name="checkpoint")
    writer.start()
    train(3)
    writer.join()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
