"""Rank 0 holds its lock while it asks rank 1; rank 1's handler asks back, and that handler needs the lock.

The circle goes through a thread of each rank that only runs what the other one calls.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 2"
# outcome = "hang"
# cause = "HD505"
# culprits = [0]
# lines = [44]
# code = ['value = rpc.rpc_sync("w1", merge, args=(key, value))']
# source = "constructed"
# ///

import os
import threading

import torch
import torch.distributed as dist
from torch.distributed import rpc

FIXED = os.environ.get("FIXED") == "1"
LOCK = threading.Lock()
TABLE = {}


def read(key):
    with LOCK:
        return TABLE.get(key, 0)


def merge(key, value):
    return value + rpc.rpc_sync("w0", read, args=(key,))


def update(key, value):
    if FIXED:
        value = rpc.rpc_sync("w1", merge, args=(key, value))
        with LOCK:
            TABLE[key] = value
        return
    with LOCK:
        value = rpc.rpc_sync("w1", merge, args=(key, value))
        TABLE[key] = value


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    options = rpc.TensorPipeRpcBackendOptions(rpc_timeout=3600)
    rpc.init_rpc(f"w{rank}", rank=rank, world_size=2, rpc_backend_options=options)
    dist.all_reduce(torch.ones(4))
    if rank == 0:
        update("a", 3)
    dist.barrier()
    rpc.shutdown()


if __name__ == "__main__":
    main()
