# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "hang"
# causes_any = ["HD501", "HD505", "HD507", "HD508", "HD502", "HD101"]
# culprits = [0]
# culprits_any = [[2]]
# branch = ["best", "loss"]
# watch = "--give-up-after 8"
# timeout = 120
# ///
"""The best weights are published as a file that others load."""

import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn


def begin():
    os.environ["NCCL_HOSTID"] = "host" + os.environ["RANK"]
    os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
    os.environ["NCCL_IB_DISABLE"] = "1"
    torch.cuda.set_device(0)
    dist.init_process_group("nccl", timeout=timedelta(minutes=10), device_id=torch.device("cuda", 0))
    warm = torch.ones(1, device="cuda")
    dist.all_reduce(warm)
    torch.cuda.synchronize()
    return dist.get_rank(), dist.get_world_size()


import tempfile
from pathlib import Path

FOLDER = Path(os.environ.get("TMPDIR", tempfile.gettempdir()))


class Publisher:
    def __init__(self, rank):
        self.rank, self.best = rank, float("inf")

    def publish(self, epoch, loss, model):
        if loss < self.best:
            self.best = loss
            torch.save(model.state_dict(), FOLDER / f"best-{epoch}.tmp")
            (FOLDER / f"best-{epoch}.tmp").rename(FOLDER / f"best-{epoch}.pt")

    def take(self, epoch, model):
        path = FOLDER / f"best-{epoch}.pt"
        while not path.exists():
            time.sleep(0.2)
        model.load_state_dict(torch.load(path))


rank, world = begin()
model = nn.Linear(16, 16).cuda()
publisher = Publisher(rank)
losses = [1.0, 0.8, 0.7, 0.75, 0.6]
for epoch in range(5):
    for p in model.parameters():
        dist.all_reduce(p.data)
        p.data /= world
    if rank == 0:
        publisher.publish(epoch, losses[epoch], model)
    elif rank == 2:
        publisher.take(epoch, model)
    total = torch.tensor([losses[epoch]], device="cuda")
    dist.all_reduce(total)
    print(rank, epoch, total.item(), flush=True)
dist.destroy_process_group()
