"""A rank leaves the training with status 0.

Every rank stops when its own time budget is used up, and the budgets are not equal: rank 1 ends after four
steps while the others are in the fifth. It leaves by os._exit, so that no hook delays the end. Gloo notices
the closed connection, so this one does not hang: the others crash with "Connection closed by peer", and the
rank at fault is the only one that reports success.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "crashed"
# cause = "HD401"
# culprits = [1]
# lines = [35]
# code = ["dist.all_reduce(gradient)"]
# source = "https://github.com/pytorch/pytorch/issues/28257"
# ///

import os

import torch
import torch.distributed as dist

FIXED = os.environ.get("FIXED") == "1"
BUDGETS = [10, 10, 10] if FIXED else [10, 4, 10]


def train(rank):
    weights = torch.ones(8)
    for step in range(10):
        if step == BUDGETS[rank]:
            print(f"rank {rank}: time is up", flush=True)
            os._exit(0)
        gradient = weights * 0.01
        dist.all_reduce(gradient)
        weights -= gradient


def main():
    dist.init_process_group("gloo")
    train(dist.get_rank())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
