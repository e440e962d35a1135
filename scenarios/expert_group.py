"""Three groups: the world, three expert ranks, and a pipeline's last two.

Rank 1's expert receives no tokens in one step and skips the exchange of its group. The hang begins in the
experts' group [0, 1, 2] and reaches everyone through the others: rank 2 never gets to the pair [2, 3], so
rank 3 waits there, and rank 1 waits for all of them in the world's all_reduce. Rank 1 is to blame, and only
its group's history shows it.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "hang"
# cause = "HD101"
# culprits = [1]
# lines = [31, 46]
# code = ["if tokens.numel() == 0 and not FIXED:", "dist.all_reduce(gradient)"]
# source = "constructed"
# ///

import os

import torch
import torch.distributed as dist

FIXED = os.environ.get("FIXED") == "1"
EXPERTS = [0, 1, 2]
TAIL = [2, 3]


def exchange(tokens, experts):
    # The corrected version takes part with an empty contribution.
    if tokens.numel() == 0 and not FIXED:
        return
    load = torch.tensor([float(tokens.numel())])
    dist.all_reduce(load, group=experts)


def step(rank, number, experts, tail):
    if rank in EXPERTS:
        tokens = torch.empty(0) if (rank, number) == (1, 7) else torch.ones(5)
        exchange(tokens, experts)
    if rank in TAIL:
        activations = torch.ones(4)
        dist.broadcast(activations, src=TAIL[0], group=tail)
        dist.all_reduce(activations, group=tail)
    gradient = torch.ones(8)
    dist.all_reduce(gradient)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    experts = dist.new_group(EXPERTS)
    tail = dist.new_group(TAIL)
    for number in range(10):
        step(rank, number, experts, tail)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
