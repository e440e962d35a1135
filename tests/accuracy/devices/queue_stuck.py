# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "hang"
# causes_any = ["HD503", "HD508", "HD501", "HD502", "HD504", "HD505", "HD103"]
# culprits = [1]
# timeout = 120
# ///
"""A rank that waits for its prefetch thread."""

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


import queue
import threading


def prefetch(q, rank, paths):
    for path in paths:
        with open(path, "rb") as f:
            q.put(f.read())


rank, world = begin()
folder = os.environ.get("TMPDIR", "/tmp")
paths = []
for i in range(6):
    path = os.path.join(folder, f"{rank}_{i}")
    if not (rank == 1 and i == 4):
        open(path, "wb").write(b"x" * 512)
    paths.append(path)
q = queue.Queue(2)
threading.Thread(target=prefetch, args=(q, rank, paths), daemon=True).start()
total = torch.zeros(1, device="cuda")
for _ in range(6):
    data = q.get()
    value = torch.tensor([float(len(data))], device="cuda")
    dist.all_reduce(value)
    total += value
print(total.item(), flush=True)
dist.destroy_process_group()
