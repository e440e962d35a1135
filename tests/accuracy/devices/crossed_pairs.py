# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "hang"
# causes_any = ["HD107"]
# culprits = [0, 3]
# culprits_any = [[1, 2]]
# timeout = 120
# ///
"""Tensor and data groups entered in an order that depends on the stage."""

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
rows = [dist.new_group([0, 1]), dist.new_group([2, 3])]
cols = [dist.new_group([0, 2]), dist.new_group([1, 3])]
row, col = rows[rank // 2], cols[rank % 2]
a, b = torch.ones(1 << 20, device="cuda"), torch.ones(1 << 20, device="cuda")
for step in range(4):
    dist.all_reduce(a, group=row)
    dist.all_reduce(b, group=col)
torch.cuda.synchronize()
first, second = (row, col) if rank in (0, 3) else (col, row)
dist.all_reduce(a, group=first)
torch.cuda.synchronize()
dist.all_reduce(b, group=second)
torch.cuda.synchronize()
dist.destroy_process_group()
