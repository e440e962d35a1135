# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "hang"
# causes_any = ["HD101"]
# culprits = [2]
# branch = ["results"]
# timeout = 120
# ///
"""all_gather_object that one rank leaves out."""

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


def collect(results):
    everyone = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, results)
    return everyone


for epoch in range(3):
    results = {"epoch": epoch, "rank": rank}
    if epoch == 2 and rank == 2:
        results = {}
    if results:
        collect(results)
dist.barrier()
torch.cuda.synchronize()
dist.destroy_process_group()
