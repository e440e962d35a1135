"""Rank 0 validates with the wrapped model.

Validation on rank 0 alone is a habit from one GPU, and nothing in it looks like communication. But calling
a DistributedDataParallel model broadcasts its buffers, and BatchNorm has three, in eval mode too. The other
rank has gone on to the barrier. Calling model.module would not communicate.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 2"
# outcome = "hang"
# cause = "HD109"
# culprits = [0]
# lines = [31, 46]
# code = ["outputs = [network(batch) for batch in batches]", "validate(model.module if FIXED else model)"]
# source = "https://github.com/pytorch/pytorch/issues/20611"
# ///

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

FIXED = os.environ.get("FIXED") == "1"


def validate(network):
    network.eval()
    batches = [torch.full((2, 4), 0.5), torch.full((2, 4), 0.25)]
    with torch.no_grad():
        outputs = [network(batch) for batch in batches]
    return float(torch.cat(outputs).mean())


def train(rank):
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(3):
        model.train()
        for _ in range(3):
            loss = model(torch.randn(8, 4)).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            validate(model.module if FIXED else model)
        dist.barrier()


def main():
    dist.init_process_group("gloo")
    train(dist.get_rank())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
