"""Several reductions in one: a coalescing manager that one rank does not enter.

The gradients of all layers are reduced in one coalesced all_reduce. Rank 2 skips a step whose gradients are not
finite.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "hang"
# cause = "HD101"
# culprits = [2]
# lines = [27]
# code = ["with _coalescing_manager():"]
# source = "constructed"
# ///

import os

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _coalescing_manager

FIXED = os.environ.get("FIXED") == "1"


def reduce_gradients(gradients):
    with _coalescing_manager():
        for gradient in gradients:
            dist.all_reduce(gradient)


def train(rank):
    for step in range(6):
        gradients = [torch.ones(8) / (step + 1), torch.ones(4)]
        if rank == 2 and step == 3:
            gradients[1][0] = float("inf")
        finite = all(bool(gradient.isfinite().all()) for gradient in gradients)
        if finite or FIXED:
            reduce_gradients(gradients)
        norm = gradients[0].norm()
        dist.broadcast(norm, src=0)


def main():
    dist.init_process_group("gloo")
    train(dist.get_rank())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
