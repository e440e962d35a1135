"""Rank 0 prints the accuracy.

Every rank updates its torchmetrics metric, and rank 0 prints the result at the end of the epoch. compute()
looks like arithmetic; under torch.distributed it first waits in a barrier and gathers the state of every
rank. The other rank has gone on to the next epoch.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 2"
# outcome = "hang"
# cause = "HD109"
# culprits = [0]
# lines = [28]
# code = ["result = accuracy.compute()"]
# source = "https://github.com/Lightning-AI/torchmetrics/issues/938"
# ///

import os

import torch
import torch.distributed as dist
from torchmetrics import MeanMetric

FIXED = os.environ.get("FIXED") == "1"


def report(rank, epoch, accuracy):
    result = accuracy.compute()
    if rank == 0:
        print(f"epoch {epoch}: accuracy {float(result):.3f}")


def train(rank):
    accuracy = MeanMetric()
    weights = torch.ones(8)
    for epoch in range(4):
        for _ in range(3):
            gradient = weights * 0.01
            dist.all_reduce(gradient)
            weights -= gradient
            accuracy.update(float(weights.mean()))
        if rank == 0 or FIXED:
            report(rank, epoch, accuracy)
        accuracy.reset()


def main():
    dist.init_process_group("gloo")
    train(dist.get_rank())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
