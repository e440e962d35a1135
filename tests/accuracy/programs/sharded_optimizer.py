"""A library communicates where nobody expects it: ZeroRedundancyOptimizer.

consolidate_state_dict gathers the shards of all ranks. Rank 0 alone calls it, before it saves.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "hang"
# culprits = [0]
# lines = [27]
# code = ["optimizer.consolidate_state_dict(to=0)"]
# source = "constructed"
# ///

import os

import torch
import torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

FIXED = os.environ.get("FIXED") == "1"


def save(optimizer, rank):
    if rank == 0 or FIXED:
        optimizer.consolidate_state_dict(to=0)
    return optimizer.state_dict() if rank == 0 else None


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(torch.nn.Linear(8, 8))
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.SGD, lr=0.1)
    for step in range(6):
        model(torch.ones(4, 8)).mean().backward()
        optimizer.step()
        if step == 3:
            save(optimizer, rank)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
