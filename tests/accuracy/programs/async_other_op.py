"""The same place in the sequence, and another operation, waited for much later.

The ranks share their statistics in every step. Rank 1 has an older setting and gathers what the others reduce. Both
calls are asynchronous, so that the ranks go on to the next steps, and stand in a wait far behind the line at fault.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "hang"
# cause = "HD106"
# culprits = [1]
# lines = [28]
# code = ["return dist.all_gather(gathered, numbers, async_op=True)"]
# source = "constructed"
# ///

import os

import torch
import torch.distributed as dist

FIXED = os.environ.get("FIXED") == "1"


def share(rank, numbers):
    if rank == 1 and not FIXED:
        gathered = [torch.empty_like(numbers) for _ in range(dist.get_world_size())]
        return dist.all_gather(gathered, numbers, async_op=True)
    return dist.all_reduce(numbers, async_op=True)


def train(rank):
    open_handles = []
    for step in range(5):
        dist.all_reduce(torch.ones(2))
        if step == 2:
            open_handles.append(share(rank, torch.ones(16)))
        open_handles.append(dist.all_reduce(torch.full((4,), float(step)), async_op=True))
        if step > 2:
            open_handles.pop(0).wait()
    for handle in open_handles:
        handle.wait()


def main():
    dist.init_process_group("gloo")
    train(dist.get_rank())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
