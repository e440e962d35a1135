"""A job without a launcher: mp.spawn, and a summary on rank 0 only.

torch.multiprocessing.spawn starts the ranks from one Python process, and they set their rendezvous up by
themselves: no RANK variable can be seen from outside. The middle of the job is fine; at the end rank 0
alone gathers the results.
"""

# /// hangdoc
# launch = "python"
# outcome = "hang"
# cause = "HD101"
# culprits = [0]
# lines = [31]
# code = ["dist.all_gather(results, result)"]
# source = "constructed"
# ///

import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

FIXED = os.environ.get("FIXED") == "1"
WORLD_SIZE = 3


def summary(result):
    results = [torch.zeros_like(result) for _ in range(WORLD_SIZE)]
    dist.all_gather(results, result)
    return torch.stack(results).mean()


def work(rank, port):
    dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=WORLD_SIZE)
    result = torch.zeros(4)
    for step in range(6):
        part = torch.full((4,), float(step + rank))
        dist.all_reduce(part)
        result += part
    if rank == 0 or FIXED:
        mean = summary(result)
        if rank == 0:
            print(f"mean {float(mean):.1f}")
    dist.barrier()
    dist.destroy_process_group()


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


if __name__ == "__main__":
    mp.spawn(work, args=(free_port(),), nprocs=WORLD_SIZE)
