# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "hang"
# causes_any = ["HD101", "HD102", "HD109"]
# culprits = [2]
# branch = ["mine.numel()", "keep.any()"]
# timeout = 120
# ///
"""A layer of experts, one on each rank."""

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


class Experts(nn.Module):
    def __init__(self, rank, world):
        super().__init__()
        self.rank, self.world = rank, world
        self.expert = nn.Linear(32, 32)

    def exchange(self, rows, counts):
        theirs = torch.empty_like(counts)
        dist.all_to_all_single(theirs, counts)
        out = rows.new_empty(int(theirs.sum()), rows.shape[1])
        dist.all_to_all_single(out, rows, theirs.tolist(), counts.tolist())
        return out

    def forward(self, x, gate):
        keep = gate >= 0
        mine = x[keep]
        if mine.numel() == 0:
            return x
        order = gate[keep].argsort()
        counts = torch.bincount(gate[keep], minlength=self.world)
        return self.expert(self.exchange(mine[order], counts))


rank, world = begin()
layer = Experts(rank, world).cuda()
generator = torch.Generator(device="cuda").manual_seed(rank)
with torch.no_grad():
    for step in range(30):
        tokens = torch.randn(64, 32, device="cuda", generator=generator)
        gate = torch.randint(0, world, (64,), device="cuda", generator=generator)
        capacity = torch.rand(64, device="cuda", generator=generator) + (0.0 if (rank, step) != (2, 11) else -2.0)
        gate[capacity < 0] = -1
        y = layer(tokens, gate)
        if step % 10 == 9:
            print(rank, step, tuple(y.shape), flush=True)
dist.barrier()
dist.destroy_process_group()
