"""Groups of two that reduce asynchronously, and a barrier of all.

Rank 3 has no tokens in one step and skips the reduction of its pair. Rank 2 waits for it at the end, ranks 0 and 1 are
already in the barrier of all, and so is rank 3.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "hang"
# cause = "HD101"
# culprits = [3]
# lines = [29]
# code = ["return dist.all_reduce(tokens, group=pair, async_op=True)"]
# source = "constructed"
# ///

import os

import torch
import torch.distributed as dist

FIXED = os.environ.get("FIXED") == "1"


def reduce_tokens(rank, pair, step):
    tokens = torch.full((4,), float(step))
    if rank == 3 and step == 2 and not FIXED:
        return None
    return dist.all_reduce(tokens, group=pair, async_op=True)


def train(rank):
    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    handles = []
    for step in range(5):
        handles.append(reduce_tokens(rank, pairs[rank // 2], step))
        torch.ones(64).sum()
    for handle in handles:
        if handle is not None:
            handle.wait()
    dist.barrier()


def main():
    dist.init_process_group("gloo")
    train(dist.get_rank())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
