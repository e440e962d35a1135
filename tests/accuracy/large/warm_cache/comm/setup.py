"""Joining and leaving the job."""

import os
from collections import namedtuple
from datetime import timedelta

import torch.distributed as dist

Place = namedtuple("Place", "rank size provides run")


def join(opts):
    """The place of this process. Rank 0 makes what all ranks need."""
    if "MASTER_ADDR" not in os.environ:
        raise SystemExit("this runs below torchrun")
    backend = opts["run"].get("backend", "gloo")
    dist.init_process_group(backend, timeout=timedelta(hours=1))
    rank, size = dist.get_rank(), dist.get_world_size()
    run = os.environ.get("TORCHELASTIC_RUN_ID", "") or "alone"
    return Place(rank, size, provides=rank == 0, run=run[:8])


def store_of(place):
    """A client of the store through which the ranks found each other, with names of our own."""
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = dist.TCPStore(address, port, is_master=False, wait_for_workers=False, timeout=timedelta(hours=1))
    return dist.PrefixStore("tables", store)


def leave(place):
    if dist.is_initialized():
        dist.destroy_process_group()
