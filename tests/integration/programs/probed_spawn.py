"""mp.spawn for the probe's tests: ``probed_spawn.py MODE``. Nothing in the environment tells the ranks."""

from __future__ import annotations

import os
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def work(rank: int, port: int, mode: str) -> None:
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    dist.all_reduce(torch.ones(1))
    if mode == "raises":
        if rank == 1:
            raise LookupError("no such sample; password=hunter2")
        return
    os.write(1, b"ready\n")  # whole, whoever else writes
    time.sleep(1000)


if __name__ == "__main__":
    start = "fork" if sys.argv[1] == "fork" else "spawn"
    mp.start_processes(work, args=(int(sys.argv[2]), sys.argv[1]), nprocs=2, start_method=start)
