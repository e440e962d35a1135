"""Rank 0 writes a checkpoint for fourteen seconds, in small pieces to a slow disk; rank 1 waits in the barrier."""

import os
import tempfile
import time

import torch
import torch.distributed as dist

SECONDS = float(os.environ.get("PAUSE", "14"))


def save(path, seconds):
    piece = os.urandom(1 << 16)
    end = time.monotonic() + seconds
    with open(path, "wb") as file:
        while time.monotonic() < end:
            file.write(piece)
            file.flush()
            os.fsync(file.fileno())
            time.sleep(0.05)


dist.init_process_group("gloo")
rank = dist.get_rank()
weights = torch.ones(16)
dist.all_reduce(weights)
with tempfile.TemporaryDirectory() as folder:
    if rank == 0:
        save(os.path.join(folder, "checkpoint.pt"), SECONDS)
    dist.barrier()
if rank == 0:
    print("well ended")
dist.destroy_process_group()
