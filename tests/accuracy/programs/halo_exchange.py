"""A halo exchange in one batch: the last pair of neighbours is forgotten on one side.

Each rank swaps its borders with its left and its right neighbour in one batch_isend_irecv. The test for the
right border is off by one, in the send only: the last rank but one receives from the last and sends it nothing.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "hang"
# cause = "HD202"
# culprits = [2]
# lines = [35]
# code = ["for request in dist.batch_isend_irecv(operations):"]
# source = "constructed"
# ///

import os

import torch
import torch.distributed as dist

FIXED = os.environ.get("FIXED") == "1"


def exchange(field, rank, size):
    left, right = torch.empty(4), torch.empty(4)
    operations = []
    if rank > 0:
        operations.append(dist.P2POp(dist.isend, field[:4].clone(), rank - 1))
        operations.append(dist.P2POp(dist.irecv, left, rank - 1))
    if rank < size - 1:
        operations.append(dist.P2POp(dist.irecv, right, rank + 1))
    if rank < size - (1 if FIXED else 2):
        operations.append(dist.P2POp(dist.isend, field[-4:].clone(), rank + 1))
    for request in dist.batch_isend_irecv(operations):
        request.wait()
    return left, right


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    field = torch.full((32,), float(rank))
    for _ in range(4):
        left, right = exchange(field, rank, size)
        if rank > 0:
            field[:4] = (field[:4] + left) / 2
        if rank < size - 1:
            field[-4:] = (field[-4:] + right) / 2
        residual = field.sum()
        dist.all_reduce(residual)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
