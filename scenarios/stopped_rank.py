"""A rank is stopped, not dead.

Rank 1 gets SIGSTOP in the middle of the training, as from ctrl-Z, a debugger or a scheduler that suspends
jobs. Its connections stay open, so nobody notices; the others wait in an all_reduce and the code is right
everywhere.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "hang"
# cause = "HD403"
# culprits = [1]
# lines = [31]
# code = ["os.kill(os.getpid(), signal.SIGSTOP)"]
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
        if (rank, step) == (1, 5) and not FIXED:
            os.kill(os.getpid(), signal.SIGSTOP)
        gradient = weights * 0.01
        dist.all_reduce(gradient)
        weights -= gradient


def main():
    dist.init_process_group("gloo")
    train(dist.get_rank())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
