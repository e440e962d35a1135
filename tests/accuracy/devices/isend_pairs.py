# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "hang"
# causes_any = ["HD201", "HD202", "HD203", "HD101", "HD102"]
# culprits = [1]
# culprits_any = [[2]]
# timeout = 120
# ///
"""Halo rows exchanged between neighbours."""

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


class Halo:
    def __init__(self, rank, world, rows):
        self.rank, self.world = rank, world
        self.grid = torch.rand(rows, 256, device="cuda")

    def neighbours(self):
        return [n for n in (self.rank - 1, self.rank + 1) if 0 <= n < self.world]

    def exchange(self, tolerance):
        ops, edges = [], {}
        for n in self.neighbours():
            edge = self.grid[0] if n < self.rank else self.grid[-1]
            edges[n] = torch.empty_like(edge)
            ops.append(dist.P2POp(dist.irecv, edges[n], n))
            ops.append(dist.P2POp(dist.isend, edge.contiguous(), n))
        if self.converged(tolerance):
            ops = [op for op in ops if op.peer != self.rank + 1]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        return edges

    def converged(self, tolerance):
        return self.grid.std().item() < tolerance[self.rank]

    def relax(self, edges):
        self.grid = self.grid * 0.8 + self.grid.mean() * 0.2


rank, world = begin()
halo = Halo(rank, world, 64)
for sweep in range(20):
    halo.relax(halo.exchange([1e-9, 0.02, 1e-9, 1e-9]))
    if sweep % 5 == 4:
        print(rank, sweep, halo.grid.mean().item(), flush=True)
torch.cuda.synchronize()
dist.barrier()
dist.destroy_process_group()
