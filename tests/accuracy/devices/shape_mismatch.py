# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 2"
# outcome = "hang"
# causes_any = ["HD104"]
# timeout = 120
# ///
"""A gather of results of unequal sizes."""

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
for step in range(4):
    n = 1000 if step < 3 or rank == 0 else 1 << 22
    x = torch.ones(n, device="cuda")
    dist.all_reduce(x)
    print(rank, step, x.sum().item(), flush=True)
dist.destroy_process_group()
