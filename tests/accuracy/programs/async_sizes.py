"""An asynchronous all_reduce of another size.

Rank 2 has loaded a larger head, and reduces 64 numbers where the others reduce 16. Its handle is waited for at the end
of the step, after further calls. gloo aborts the rank that gets more bytes than it expects, and the others lose it.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "crashed"
# cause = "HD104"
# culprits = [2]
# lines = [34]
# code = ["handles.append(dist.all_reduce(head(rank), async_op=True))"]
# source = "constructed"
# ///

import os

import torch
import torch.distributed as dist

FIXED = os.environ.get("FIXED") == "1"


def head(rank):
    return torch.ones(64 if rank == 2 and not FIXED else 16)


def train(rank):
    dist.all_reduce(torch.ones(4))
    for step in range(4):
        handles = []
        if step == 2:
            handles.append(dist.all_reduce(head(rank), async_op=True))
        handles.append(dist.all_reduce(torch.full((4,), float(step)), async_op=True))
        torch.ones(64).sum()
        for handle in reversed(handles):
            handle.wait()
    dist.barrier()


def main():
    dist.init_process_group("gloo")
    train(dist.get_rank())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
