# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "healthy"
# source = "https://github.com/pytorch/pytorch/issues/38174"
# ///
"""Uneven data done right: DDP and ZeroRedundancyOptimizer in one Join context, one process has much less data and
shadows the others for several seconds."""
import logging
import time
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
log = logging.getLogger("join")


@dataclass
class JoinConfig:
    features: int = 8
    batches: tuple = (30, 30, 3, 28)
    seconds_per_batch: float = 0.45


def spin(seconds):
    """Stands for the real forward pass."""
    end, x = time.perf_counter() + seconds, 0.0
    while time.perf_counter() < end:
        x += sum(i * i for i in range(2000))
    return x


def main():
    torch.set_num_threads(1)
    cfg = JoinConfig()
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(cfg.features, 16), nn.ReLU(), nn.Linear(16, 1)))
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.SGD, lr=0.05)
    gen = torch.Generator().manual_seed(rank)
    with Join([model, optimizer]):
        for i in range(cfg.batches[rank]):
            x = torch.randn(4, cfg.features, generator=gen)
            loss = nn.functional.mse_loss(model(x), x.sum(-1, keepdim=True))
            optimizer.zero_grad()
            loss.backward()
            spin(cfg.seconds_per_batch)
            optimizer.step()
    counts = [None] * dist.get_world_size()
    dist.all_gather_object(counts, cfg.batches[rank])
    if rank == 0:
        log.info("batches per process %s, last loss %.4f", counts, loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
