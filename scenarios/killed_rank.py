"""A rank is killed in the middle of the training.

Rank 2 ends by SIGKILL, which is what the kernel's out-of-memory killer sends. There is no traceback. Its
peers crash with "Connection closed by peer" a moment later, and those are the messages that fill the log.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "crashed"
# cause = "HD402"
# culprits = [2]
# lines = [32]
# code = ["dist.all_reduce(gradient)"]
# source = "constructed"
# ///

import os
import signal

import torch
import torch.distributed as dist

FIXED = os.environ.get("FIXED") == "1"


def train(rank):
    weights = torch.ones(8)
    for step in range(10):
        if (rank, step) == (2, 6) and not FIXED:
            os.kill(os.getpid(), signal.SIGKILL)
        gradient = weights * 0.01
        dist.all_reduce(gradient)
        weights -= gradient


def main():
    dist.init_process_group("gloo")
    train(dist.get_rank())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
