"""A rank skips the step whose loss is not finite.

"Skip the batch if the loss is not finite" reads like hygiene, and it works on one GPU. With two, the rank
with the bad batch issues one all_reduce less than its peer and waits in the report that follows. There is
no majority and no condition on the rank; what tells is history: never before did this rank go from one
report straight to the next.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 2"
# outcome = "hang"
# cause = "HD101"
# culprits = [1]
# lines = [39, 40, 51]
# code = ["if not finite:", "return", "dist.all_gather(losses, loss)"]
# source = "https://github.com/NVIDIA-NeMo/Automodel/pull/2468"
# ///

import math
import os

import torch
import torch.distributed as dist

FIXED = os.environ.get("FIXED") == "1"


def everywhere(flag):
    vote = torch.tensor([1.0 if flag else 0.0])
    dist.all_reduce(vote, op=dist.ReduceOp.MIN)
    return bool(vote)


def update(weights, loss):
    finite = bool(torch.isfinite(loss))
    if FIXED:
        finite = everywhere(finite)
    gradient = weights * loss
    if not finite:
        return
    dist.all_reduce(gradient)
    weights -= 0.01 * gradient


def train(rank):
    weights = torch.ones(8)
    for step in range(9):
        loss = torch.tensor(math.nan if (rank, step) == (1, 6) else 1.0 / (step + 1))
        update(weights, loss)
        losses = [torch.zeros(()) for _ in range(dist.get_world_size())]
        dist.all_gather(losses, loss)


def main():
    dist.init_process_group("gloo")
    train(dist.get_rank())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
