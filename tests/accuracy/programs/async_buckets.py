"""Buckets of gradients that are reduced while the backward pass goes on.

Every bucket is reduced asynchronously as soon as its gradients are there, and all handles are waited for at the end of
the step. In one step a bucket of rank 2 has no gradient, and its all_reduce is skipped. From there on rank 2 is one
call behind: the others freeze in their last wait, steps later. (A loop that ended a round early would look the same,
so no cause is demanded.)
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "hang"
# culprits = [2]
# lines = [31]
# code = ["handles.append(dist.all_reduce(bucket, async_op=True))"]
# source = "constructed"
# ///

import os

import torch
import torch.distributed as dist

FIXED = os.environ.get("FIXED") == "1"


def reduce_buckets(buckets):
    handles = []
    for bucket in reversed(buckets):
        if bucket is None:
            continue
        handles.append(dist.all_reduce(bucket, async_op=True))
        bucket.sum()
    return handles


def train(rank):
    for step in range(6):
        buckets = [torch.ones(8) for _ in range(4)]
        if rank == 2 and step == 3 and not FIXED:
            buckets[1] = None
        for handle in reduce_buckets(buckets):
            handle.wait()
    dist.barrier()


def main():
    dist.init_process_group("gloo")
    train(dist.get_rank())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
