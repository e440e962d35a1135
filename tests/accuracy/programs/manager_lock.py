"""A barrier under a lock of multiprocessing's Manager.

The lock lives in the Manager's process, which serves every rank from a thread of its own: no rank is seen to hold it.
"""

# /// hangdoc
# launch = "python"
# outcome = "hang"
# cause = "HD504"
# culprits = [0]
# lines = [32]
# code = ["dist.barrier()  # under the lock"]
# source = "constructed"
# ///

import os
import socket
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

FIXED = os.environ.get("FIXED") == "1"


def report(rank, lock):
    if rank == 1:
        time.sleep(1)
    with lock:
        if rank == 0 and not FIXED:
            dist.barrier()  # under the lock
    if rank == 1 or FIXED:
        dist.barrier()


def work(rank, lock, port):
    dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    weights = torch.ones(4)
    for step in range(6):
        dist.all_reduce(weights)
        if step == 4:
            report(rank, lock)
    dist.destroy_process_group()


def main():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with mp.Manager() as manager:
        mp.spawn(work, args=(manager.Lock(), port), nprocs=2)


if __name__ == "__main__":
    main()
