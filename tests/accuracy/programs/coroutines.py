"""Collectives from coroutines, in the order in which the event loop wakes them.

Each rank runs two coroutines on one event loop, one for the weights and one for the metrics, and each of
them calls a collective after a pause. The pause of the metrics is shorter on rank 1.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "hang"
# culprits = [1]
# lines = [28, 34]
# code = ["dist.broadcast(weights, src=0)", "dist.all_reduce(metrics)"]
# source = "constructed"
# ///

import asyncio
import os

import torch
import torch.distributed as dist

FIXED = os.environ.get("FIXED") == "1"


async def share_weights():
    await asyncio.sleep(0.5)
    weights = torch.ones(32)
    dist.broadcast(weights, src=0)


async def share_metrics(pause):
    await asyncio.sleep(pause)
    metrics = torch.ones(2)
    dist.all_reduce(metrics)


async def step(rank):
    await asyncio.gather(share_weights(), share_metrics(0.1 if rank == 1 and not FIXED else 1.0))


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    dist.barrier()
    asyncio.run(step(rank))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
