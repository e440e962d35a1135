"""Handles that each rank waits for in another order, and a fault that has nothing to do with it.

The ranks issue the same calls in the same order, in two groups. One waits for the newest handle first, another for the
oldest, which is harmless. Then rank 0 polls for a file that nobody writes, while the others wait for its next call.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "hang"
# cause = "HD508"
# culprits = [0]
# lines = [34]
# code = ["time.sleep(0.5)"]
# source = "constructed"
# watch = "--give-up-after 8"
# ///

import os
import time

import torch
import torch.distributed as dist

FIXED = os.environ.get("FIXED") == "1"


def finish(rank, handles):
    for handle in handles if rank % 2 else reversed(handles):
        handle.wait()


def until_written(path):
    while not os.path.exists(path):
        time.sleep(0.5)


def train(rank):
    group = dist.new_group([0, 1, 2])
    for step in range(6):
        handles = [dist.all_reduce(torch.ones(4), async_op=True) for _ in range(3)]
        handles.append(dist.all_reduce(torch.ones(8), group=group, async_op=True))
        if step == 4 and rank == 0 and not FIXED:
            finish(rank, handles)
            until_written("settings-of-the-next-phase.json")
        else:
            finish(rank, handles)
    dist.barrier()


def main():
    dist.init_process_group("gloo")
    train(dist.get_rank())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
