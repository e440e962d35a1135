# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "hang"
# causes_any = ["HD103", "HD105", "HD106", "HD101"]
# culprits = [2]
# timeout = 120
# ///
"""Statistics and weights exchanged in the order of a set."""

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


def exchange(tensors, names):
    for name in names:
        if name == "stats":
            dist.all_reduce(tensors[name])
        else:
            dist.broadcast(tensors[name], 0)


rank, world = begin()
tensors = {"stats": torch.ones(1000, device="cuda"), "weights": torch.ones(5000, device="cuda")}
seen = ["stats", "weights"] if rank != 2 else ["weights", "stats"]
for step in range(5):
    exchange(tensors, sorted(seen))
exchange(tensors, seen)
print("sum", tensors["stats"].sum().item(), flush=True)
dist.barrier()
dist.destroy_process_group()
