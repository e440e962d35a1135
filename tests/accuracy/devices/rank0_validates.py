# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "hang"
# causes_any = ["HD101"]
# culprits = [0]
# branch = ["dist.get_rank() == 0"]
# timeout = 120
# ///
"""Rank 0 computes validation metrics now and then."""

import os
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn

BACKEND = "nccl"


def begin():
    os.environ["NCCL_HOSTID"] = "host" + os.environ["RANK"]
    os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
    os.environ["NCCL_IB_DISABLE"] = "1"
    torch.cuda.set_device(0)
    dist.init_process_group(
        BACKEND, timeout=timedelta(minutes=10), device_id=torch.device("cuda", 0) if BACKEND == "nccl" else None
    )
    warm = torch.ones(1, device="cuda")
    dist.all_reduce(warm)
    torch.cuda.synchronize()
    return dist.get_rank(), dist.get_world_size()


class Metrics:
    def __init__(self):
        self.total = torch.zeros(2, device="cuda")

    def update(self, value):
        self.total += torch.stack([value, torch.ones_like(value)])

    def compute(self):
        dist.all_reduce(self.total)
        return (self.total[0] / self.total[1]).item()


def validate(model):
    metric = Metrics()
    for _ in range(4):
        metric.update(model(torch.randn(8, 32, device="cuda")).square().mean().detach())
    return metric.compute()


rank, world = begin()
model = nn.parallel.DistributedDataParallel(nn.Linear(32, 32).cuda(), device_ids=[0])
for step in range(20):
    model(torch.randn(8, 32, device="cuda")).sum().backward()
    if step == 10 and dist.get_rank() == 0:
        print("val", validate(model.module), flush=True)
torch.cuda.synchronize()
dist.destroy_process_group()
