"""A rank skips a sample that it cannot decode, and the all_reduce of that step with it.

The loop catches the decoder's ValueError, prints a line and goes on to the next sample. Whoever decoded its
sample averages the loss over the ranks; rank 1 does not, once. Nothing hangs then: from there on rank 1 is
one call ahead of the others, and only after the loop, at the barrier, is one call missing.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "hang"
# cause = "HD103"
# culprits = [1]
# lines = [35, 41]
# code = ["except ValueError as error:", "dist.all_reduce(loss)"]
# source = "constructed"
# ///

import os

import torch
import torch.distributed as dist

FIXED = os.environ.get("FIXED") == "1"


def decode(rank, step):
    text = "4,x,1" if (rank, step) == (1, 3) else f"{step},{rank},1"
    return torch.tensor([float(word) for word in text.split(",")])


def train(rank):
    for step in range(8):
        try:
            sample = decode(rank, step)
        except ValueError as error:
            print(f"rank {rank}: sample {step} skipped: {error}")
            if not FIXED:
                continue
            sample = torch.zeros(3)
        loss = sample.mean()
        dist.all_reduce(loss)
    dist.barrier()


def main():
    dist.init_process_group("gloo")
    train(dist.get_rank())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
