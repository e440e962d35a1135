# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "hang"
# causes_any = ["HD102"]
# culprits = [0]
# culprits_any = [[1, 2]]
# branch = ["for item in shard"]
# timeout = 120
# ///
"""DDP over shards of unequal length."""

import os
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn

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
model = nn.parallel.DistributedDataParallel(
    nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1)).cuda(), device_ids=[0]
)
optimizer = torch.optim.Adam(model.parameters())
files = list(range(31))
shard = files[rank::world]
for epoch in range(2):
    for item in shard:
        x = torch.full((16, 256), float(item), device="cuda")
        loss = model(x).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.cuda.synchronize()
    scores = torch.tensor([loss.item()], device="cuda")
    dist.all_reduce(scores)
    print("epoch", epoch, scores.item(), flush=True)
dist.destroy_process_group()
