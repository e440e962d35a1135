"""One rank runs out of data before the others.

Four DDP ranks share a data set that does not divide evenly: rank 2 gets one batch less. It leaves the loop
and gathers its scores in evaluate() while the other three are in the backward of one more batch, waiting
for its gradients. The guilty stack shows correct code; so do the other three.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "hang"
# cause = "HD102"
# culprits = [2]
# lines = [30, 41]
# code = ["dist.all_gather(scores, score)", "for batch in batches(rank):"]
# source = "https://github.com/pytorch/pytorch/issues/33148"
# ///

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

FIXED = os.environ.get("FIXED") == "1"


def evaluate(model):
    score = sum(parameter.detach().abs().sum() for parameter in model.parameters())
    scores = [torch.zeros(()) for _ in range(dist.get_world_size())]
    dist.all_gather(scores, score)
    return max(scores)


def batches(rank):
    count = 7 if rank == 2 and not FIXED else 8
    for number in range(count):
        yield torch.full((4, 6), 0.1 * (number + rank))


def train(rank, model, optimizer):
    for batch in batches(rank):
        loss = model(batch).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(torch.nn.Linear(6, 2))
    train(rank, model, torch.optim.SGD(model.parameters(), lr=0.01))
    print(f"rank {rank}: best score {float(evaluate(model)):.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
