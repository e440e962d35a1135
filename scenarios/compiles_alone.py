"""Nothing hangs: one rank compiles, the other waits.

Rank 1 gets a batch of another shape, and torch.compile makes a second version of the model for it. That
takes some seconds in which rank 0 waits in the all_reduce.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 2"
# timeout = 150
# outcome = "slow"
# cause = "HD502"
# culprits = [1]
# lines = [38]
# code = ["loss = step(batch).mean()"]
# source = "constructed"
# ///

import os
import tempfile

import torch
import torch.distributed as dist

FIXED = os.environ.get("FIXED") == "1"


def model(batch):
    for number in range(3):
        batch = torch.sin(batch + number) * torch.softmax(batch, dim=-1)
        batch = batch.roll(number % 7, dims=0).cumsum(dim=0)
    return batch


def train(rank):
    step = torch.compile(model, dynamic=False) if rank == 1 and not FIXED else model
    for _ in range(2):
        batch = torch.ones(16, 16)
        loss = step(batch).mean()
        dist.all_reduce(loss)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    with tempfile.TemporaryDirectory(prefix="compile-cache-", ignore_cleanup_errors=True) as cache:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
        train(dist.get_rank())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
