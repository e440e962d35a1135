# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "healthy"
# watch = "--give-up-after 10"
# timeout = 120
# ///
"""Rank 0 writes a checkpoint for a while."""

import os
import time
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


rank, world = begin()
model = nn.parallel.DistributedDataParallel(nn.Linear(2048, 2048).cuda(), device_ids=[0])
for epoch in range(2):
    for step in range(30):
        model(torch.randn(64, 2048, device="cuda")).sum().backward()
    if rank == 0:
        for _ in range(150):
            torch.save(model.state_dict(), os.path.join(os.environ.get("TMPDIR", "/tmp"), "model.pt"))
            time.sleep(0.03)
    dist.barrier()
dist.destroy_process_group()
