"""Rank 1 computes for ten seconds while rank 0 waits for it in an all_reduce."""

import os
import time

import torch
import torch.distributed as dist

SECONDS = float(os.environ.get("PAUSE", "10"))


def compute(seconds):
    matrix = torch.eye(64)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        matrix = matrix @ matrix
    return matrix


dist.init_process_group("gloo")
rank = dist.get_rank()
total = torch.ones(4)
dist.all_reduce(total)
compute(SECONDS if rank == 1 else 0)
dist.all_reduce(total)
if rank == 0:
    print("well ended")
dist.destroy_process_group()
