# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "hang"
# causes_any = ["HD102", "HD101"]
# culprits = [1]
# branch = ["i >= limit"]
# timeout = 120
# ///
"""FSDP2 with an evaluation that ends early on a rank."""

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


from torch.distributed.fsdp import fully_shard

rank, world = begin()
model = nn.Sequential(*[nn.Linear(128, 128) for _ in range(3)]).cuda()
for layer in model:
    fully_shard(layer)
fully_shard(model)
opt = torch.optim.SGD(model.parameters(), 1e-3)
for step in range(5):
    model(torch.randn(8, 128, device="cuda")).sum().backward()
    opt.step()
    opt.zero_grad()


def evaluate(limit):
    best = 0.0
    with torch.no_grad():
        for i in range(8):
            score = model(torch.randn(8, 128, device="cuda")).mean().item()
            best = max(best, score)
            if i >= limit:
                break
    return best


evaluate(8 if rank != 1 else 3)
dist.barrier()
torch.cuda.synchronize()
dist.destroy_process_group()
