"""One rank's forward leaves a layer out, and DDP waits for its gradient.

The model has an optional head that only runs for long inputs, and the last input of rank 1 is short. DDP
reduces gradients in buckets, each when all of its parameters are ready: the bucket of the head never gets
ready on rank 1, so its backward ends without a call and it goes on to the barrier at the end of the epoch.
The other ranks wait for its gradients. (Had it gone to another forward, DDP would have raised an error.)
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "hang"
# cause = "HD111"
# culprits = [1]
# lines = [44]
# code = ["model(batch).mean().backward()"]
# source = "constructed"
# ///

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

FIXED = os.environ.get("FIXED") == "1"


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(512, 512)
        self.head = torch.nn.Linear(512, 512)

    def forward(self, batch):
        hidden = self.body(batch)
        if len(batch) > 2:
            hidden = self.head(hidden)
        return hidden


def train(model, rank):
    for step in range(4):
        batch = torch.ones(2 if (rank, step) == (1, 3) else 4, 512)
        model(batch).mean().backward()
        model.zero_grad()
    dist.barrier()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = DistributedDataParallel(Net(), bucket_cap_mb=1, find_unused_parameters=FIXED)
    train(model, dist.get_rank())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
