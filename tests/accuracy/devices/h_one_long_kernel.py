# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "healthy"
# watch = "--give-up-after 60"
# timeout = 120
# ///
"""One rank waits for one kernel for half a minute, the others wait for it."""

import os
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
        for _ in range(10):
            torch.cuda._sleep(5_000_000_000)
        torch.cuda.synchronize()
    dist.all_reduce(x)
    torch.cuda.synchronize()
dist.destroy_process_group()
