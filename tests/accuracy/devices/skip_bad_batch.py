# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "hang"
# causes_any = ["HD101", "HD102"]
# culprits = [1]
# branch = ["torch.isfinite(loss)"]
# timeout = 120
# ///
"""Training that skips batches whose loss is not finite."""

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


DAMAGED = {1: 13}  # rank: batch of its shard


class Trainer:
    def __init__(self, rank):
        self.rank = rank
        self.model = nn.Linear(64, 64).cuda()
        self.opt = torch.optim.SGD(self.model.parameters(), 1e-3)
        self.generator = torch.Generator().manual_seed(rank)

    def batch(self, step):
        x = torch.randn(32, 64, generator=self.generator)
        if step == DAMAGED.get(self.rank):
            x[0, 0] = float("nan")
        return x.cuda()

    def sync(self):
        for p in self.model.parameters():
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()

    def run(self):
        for step in range(40):
            loss = self.model(self.batch(step)).square().mean()
            if not torch.isfinite(loss):
                continue
            self.opt.zero_grad()
            loss.backward()
            self.sync()
            self.opt.step()
            if step % 5 == 0:
                print(step, loss.item(), flush=True)


rank, world = begin()
Trainer(rank).run()
dist.destroy_process_group()
