"""Two operations in flight at a time, which one rank issues in the other order.

Parameters are shared as they come: most ranks reduce the gradients first and then broadcast the scale, rank 1, with an
older branch of the code, the other way round. Both handles are waited for at the end of the step.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "hang"
# cause = "HD106"
# culprits = [1]
# lines = [27]
# code = ["handles = [dist.broadcast(scale, 0, async_op=True)]"]
# source = "constructed"
# ///

import os

import torch
import torch.distributed as dist

FIXED = os.environ.get("FIXED") == "1"


def exchange(rank, gradient, scale):
    if rank == 1 and not FIXED:
        handles = [dist.broadcast(scale, 0, async_op=True)]
        handles.append(dist.all_reduce(gradient, async_op=True))
    else:
        handles = [dist.all_reduce(gradient, async_op=True)]
        handles.append(dist.broadcast(scale, 0, async_op=True))
    return handles


def train(rank):
    for step in range(5):
        dist.all_reduce(torch.ones(2))
        handles = []
        if step == 3:
            handles = exchange(rank, torch.ones(8), torch.ones(8))
        torch.ones(64).sum()
        for handle in handles:
            handle.wait()
    dist.barrier()


def main():
    dist.init_process_group("gloo")
    train(dist.get_rank())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
