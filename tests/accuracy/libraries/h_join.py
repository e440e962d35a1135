# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# watch = "--give-up-after 10"
# outcome = "healthy"
# source = "https://github.com/pytorch/pytorch/issues/38174"
# ///
"""Very uneven data under the Join context: two ranks shadow the third for twenty slow steps."""
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as DDP


def batches(rank):
    for i in range({0: 2, 1: 5, 2: 9}[rank]):
        end = time.monotonic() + (3 if i > 4 else 0.2)
        while time.monotonic() < end:
            torch.randn(50, 50) @ torch.randn(50, 50)
        yield torch.randn(4, 8)


def main():
    dist.init_process_group("gloo")
    model = DDP(nn.Linear(8, 2))
    with Join([model]):
        for batch in batches(dist.get_rank()):
            model(batch).sum().backward()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
