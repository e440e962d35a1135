# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "healthy"
# timeout = 120
# ///
"""Loader workers that are slow at first."""

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


from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, i):
        until = time.process_time() + (9.0 if i < 3 else 0.2)
        x = 0.0
        while time.process_time() < until:
            x += float(torch.rand(1000).sum())
        return torch.full((8,), x)


if __name__ == "__main__":
    rank, world = begin()
    model = nn.Linear(8, 1).cuda()
    mine = DataLoader(Rows(), batch_size=3, num_workers=1) if rank == 0 else [torch.ones(3, 8)] * 4
    for batch in mine:
        loss = model(batch.cuda()).sum()
        dist.all_reduce(loss.detach())
        print(rank, loss.item(), flush=True)
    dist.destroy_process_group()
