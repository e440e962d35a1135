# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "healthy"
# watch = "--give-up-after 10"
# timeout = 120
# ///
"""One rank works on its GPU for long, the others wait for it."""

import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist

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
x = torch.ones(1024, device="cuda")
for step in range(3):
    if step == 1 and rank == 1:
        a = torch.randn(8192, 8192, device="cuda")
        until = time.time() + 30
        while time.time() < until:
            for _ in range(40):
                a = a @ a
                a /= a.abs().max()
            torch.cuda.synchronize()
    dist.all_reduce(x)
    torch.cuda.synchronize()
dist.destroy_process_group()
