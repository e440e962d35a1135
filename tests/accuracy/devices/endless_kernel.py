# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 2"
# outcome = "hang"
# causes_any = ["HD602", "HD501"]
# culprits = [1]
# culprits_any = [[]]
# timeout = 120
# watch = "--give-up-after 20"
# ///
"""A rank whose own kernel runs for minutes."""

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
for step in range(10):
    if step == 6 and rank == 1:
        torch.cuda._sleep(300_000_000_000)
    x = x * 1.01
    dist.all_reduce(x)
    if step % 2 == 0:
        print(step, x[0].item(), flush=True)
dist.destroy_process_group()
