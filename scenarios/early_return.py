"""One rank of four has no labels in its batch and leaves the loss early.

The loss of the auxiliary head is averaged over the ranks, and auxiliary_loss() returns early when a batch
has no labels for it. Nothing depends on the rank; the data does. Rank 2 meets such a batch in step 5 and
goes on to the gradients while the other three wait for it in the average. Three ranks agree, so rank 2 is
the one that parted.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "hang"
# cause = "HD101"
# culprits = [2]
# lines = [30, 43]
# code = ["return torch.zeros(1)", "dist.all_gather(norms, gradient.norm())"]
# source = "https://github.com/NVIDIA-NeMo/Automodel/pull/2468"
# ///

import os

import torch
import torch.distributed as dist

FIXED = os.environ.get("FIXED") == "1"


def auxiliary_loss(labels):
    # The corrected version adds a zero of its own instead of staying away.
    if labels.numel() == 0 and not FIXED:
        return torch.zeros(1)
    loss = labels.sum().reshape(1)
    dist.all_reduce(loss)
    return loss / dist.get_world_size()


def train(rank):
    weights = torch.ones(4)
    for step in range(10):
        labels = torch.empty(0) if (rank, step) == (2, 5) else torch.ones(3)
        loss = auxiliary_loss(labels)
        gradient = weights * loss
        norms = [torch.zeros(()) for _ in range(dist.get_world_size())]
        dist.all_gather(norms, gradient.norm())
        weights -= 0.01 * gradient / torch.stack(norms).max()


def main():
    dist.init_process_group("gloo")
    train(dist.get_rank())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
