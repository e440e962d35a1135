# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "hang"
# causes_any = ["HD101", "HD109"]
# culprits = [1]
# branch = ["x.numel() == 0"]
# timeout = 120
# ///
"""CUDA tensors over gloo, one rank returns early."""

import os
from datetime import timedelta

import torch
import torch.distributed as dist

BACKEND = "gloo"


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


def reduce(x):
    if x.numel() == 0:
        return x
    dist.all_reduce(x)
    return x


for step in range(5):
    x = torch.ones(0 if step == 4 and rank == 1 else 16, device="cuda")
    print(reduce(x).sum().item(), flush=True)
dist.barrier()
dist.destroy_process_group()
