"""Two ranks, and only one of them averages the loss it logs.

The commonest hang of all: a helper that looks like plain logging contains an all_reduce, and it is called
under `if rank == 0`. With two ranks there is no majority to tell the extra call from the missing one; the
condition on the rank does.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 2"
# outcome = "hang"
# cause = "HD101"
# culprits = [0]
# lines = [28]
# code = ["dist.all_reduce(total)"]
# source = "https://github.com/pytorch/pytorch/issues/54059"
# ///

import os

import torch
import torch.distributed as dist

FIXED = os.environ.get("FIXED") == "1"


def mean_loss(loss):
    total = loss.clone()
    dist.all_reduce(total)
    return float(total) / dist.get_world_size()


def train(rank):
    weights = torch.ones(16)
    for step in range(12):
        gradient = weights * 0.1 + rank
        dist.all_reduce(gradient)
        weights -= 0.01 * gradient
        if step % 4 == 3:
            if rank == 0 or FIXED:
                print(f"step {step}: loss {mean_loss(weights.norm()):.3f}")
            dist.barrier()


def main():
    dist.init_process_group("gloo")
    train(dist.get_rank())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
