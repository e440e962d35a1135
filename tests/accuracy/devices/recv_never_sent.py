# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "hang"
# causes_any = ["HD201", "HD202", "HD102", "HD101"]
# culprits = [2]
# culprits_any = [[1]]
# timeout = 120
# ///
"""A pipeline of stages with NCCL messages."""

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
counts = [6, 6, 7]
buffer = torch.zeros(1024, device="cuda")
for micro in range(counts[rank]):
    if rank > 0:
        dist.recv(buffer, rank - 1)
    buffer = buffer * 1.5 + 1
    if rank < world - 1:
        dist.send(buffer, rank + 1)
    if micro % 3 == 0:
        torch.cuda.synchronize()
print(rank, buffer.sum().item(), flush=True)
dist.barrier()
dist.destroy_process_group()
