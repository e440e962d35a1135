"""Everybody sends first.

Three ranks pass their halo to the next one in a ring: send to the right, then receive from the left. A send
ends when the other side receives, and nobody does. There is no rank that is more to blame than another, and
nothing in the catalogue that fits yet: the diagnosis gives the lines and the circle.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "hang"
# cause = "HD201"
# lines = [32]
# code = ["dist.send(halo, right)"]
# source = "constructed"
# ///

import os

import torch
import torch.distributed as dist

FIXED = os.environ.get("FIXED") == "1"


def exchange(rank, world_size):
    left, right = (rank - 1) % world_size, (rank + 1) % world_size
    halo, received = torch.full((1024,), float(rank)), torch.zeros(1024)
    if rank == 0 and FIXED:
        dist.recv(received, left)
        dist.send(halo, right)
        return received
    dist.send(halo, right)
    dist.recv(received, left)
    return received


def main():
    dist.init_process_group("gloo")
    dist.barrier()
    exchange(dist.get_rank(), dist.get_world_size())
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
