# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "hang"
# causes_any = ["HD101", "HD102", "HD109", "HD103"]
# culprits = [3]
# branch = ["self.shards", "len(pieces)", "piece is None", "piece"]
# timeout = 120
# ///
"""Weights gathered on a stream of their own, ahead of use."""

import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn


def begin():
    os.environ["NCCL_HOSTID"] = "host" + os.environ["RANK"]
    os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
    os.environ["NCCL_IB_DISABLE"] = "1"
    torch.cuda.set_device(0)
    dist.init_process_group("nccl", timeout=timedelta(minutes=10), device_id=torch.device("cuda", 0))
    warm = torch.ones(1, device="cuda")
    dist.all_reduce(warm)
    torch.cuda.synchronize()
    return dist.get_rank(), dist.get_world_size()


class Prefetcher:
    def __init__(self, rank, world, pieces):
        self.stream = torch.cuda.Stream()
        self.pieces, self.world, self.ready = pieces, world, {}

    def ahead(self, i):
        if i >= len(self.pieces):
            return
        piece = self.pieces[i]
        if piece is None:
            return
        with torch.cuda.stream(self.stream):
            out = torch.empty(self.world * piece.numel(), device="cuda")
            dist.all_gather_into_tensor(out, piece)
            self.ready[i] = out

    def use(self, i):
        self.ahead(i + 1)
        torch.cuda.current_stream().wait_stream(self.stream)
        return self.ready.pop(i, None)


def shards(rank):
    made = [torch.full((128,), float(rank + i), device="cuda") for i in range(12)]
    frozen = {0: [], 1: [], 2: [], 3: [7]}[rank]
    return [None if i in frozen else piece for i, piece in enumerate(made)]


rank, world = begin()
fetcher = Prefetcher(rank, world, shards(rank))
fetcher.ahead(0)
total = 0.0
for i in range(12):
    full = fetcher.use(i)
    if full is not None:
        total += full.sum().item()
print(rank, total, flush=True)
dist.barrier()
torch.cuda.synchronize()
dist.destroy_process_group()
