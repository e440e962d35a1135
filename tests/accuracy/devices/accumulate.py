# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "hang"
# causes_any = ["HD101", "HD102", "HD105", "HD106", "HD109"]
# culprits = [1]
# branch = ["self.rows", "rows >= self.target", "self.pending"]
# timeout = 120
# ///
"""Gradients summed until enough rows were seen."""

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


LENGTHS = {0: [16] * 60, 1: [16] * 20 + [12] * 40, 2: [16] * 60}


class Step:
    def __init__(self, rank, target=64):
        self.model = nn.Linear(64, 8).cuda()
        self.opt = torch.optim.SGD(self.model.parameters(), 1e-3)
        self.rank, self.target, self.rows = rank, target, 0

    def reduce(self):
        flat = torch.cat([p.grad.flatten() for p in self.model.parameters()])
        dist.all_reduce(flat)
        norm = flat.norm().item()
        self.opt.step()
        self.opt.zero_grad()
        return norm

    def feed(self, rows):
        x = torch.randn(rows, 64, device="cuda")
        self.model(x).square().mean().backward()
        self.rows += rows
        if self.rows >= self.target:
            self.rows = 0
            return self.reduce()
        return None


rank, world = begin()
step = Step(rank)
for i, rows in enumerate(LENGTHS[rank]):
    norm = step.feed(rows)
    if norm is not None and i % 8 == 7:
        print(rank, i, norm, flush=True)
votes = torch.zeros(world, device="cuda")
votes[rank] = 1
dist.all_gather_into_tensor(torch.empty(world * world, device="cuda"), votes)
torch.cuda.synchronize()
dist.destroy_process_group()
