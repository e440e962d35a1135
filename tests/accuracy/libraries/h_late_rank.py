# /// hangdoc
# launch = "python"
# requires = ["torch"]
# watch = "--give-up-after 10"
# outcome = "healthy"
# source = "https://github.com/pytorch/pytorch/issues/53395"
# ///
"""A launcher of its own starts three ranks; one first decodes its shard of the data for 28 seconds and only then joins.
The others are in init_process_group until it comes."""
import os
import socket
import time
import zlib

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def decode_shard(rank):
    end = time.monotonic() + (28 if rank == 2 else 0.1)
    blob, total = os.urandom(200000), 0
    while time.monotonic() < end:
        total += len(zlib.compress(blob, 6))
    return total


def worker(rank, world, port):
    torch.set_num_threads(1)
    size = decode_shard(rank)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
    value = torch.tensor([float(size)])
    dist.all_reduce(value)
    for _ in range(20):
        dist.all_reduce(torch.ones(1000))
    dist.destroy_process_group()


def main():
    mp.spawn(worker, args=(3, free_port()), nprocs=3)
    print("all done")


if __name__ == "__main__":
    main()
