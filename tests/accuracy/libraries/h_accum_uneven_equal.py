# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "healthy"
# source = "https://github.com/Lightning-AI/pytorch-lightning/issues/20404"
# ///
"""Gradient accumulation over uneven shards: ranks see a different number of batches, but every rank synchronizes equally often
per epoch, and slow readers make the ranks drift apart by seconds."""
import contextlib
import logging
import time
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset

log = logging.getLogger("healthy-accum")


@dataclass
class Cfg:
    features: int = 10
    batch: int = 4
    accumulate: int = 4
    epochs: int = 4
    sizes: tuple = (38, 40, 33, 37)


class SlowShard(Dataset):
    def __init__(self, cfg, rank):
        g = torch.Generator().manual_seed(rank)
        self.x = torch.randn(cfg.sizes[rank], cfg.features, generator=g)
        self.delay = 0.06 if rank == 2 else 0.0

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        time.sleep(self.delay)
        return self.x[i], self.x[i].sum()


class Loop:
    def __init__(self, cfg, rank):
        self.cfg = cfg
        self.loader = DataLoader(SlowShard(cfg, rank), batch_size=cfg.batch, shuffle=True)
        self.model = DDP(nn.Sequential(nn.Linear(cfg.features, 16), nn.ReLU(), nn.Linear(16, 1)))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)

    def last(self, index):
        return index + 1 == len(self.loader)

    def epoch(self):
        total, syncs = 0.0, 0
        for index, (x, y) in enumerate(self.loader):
            sync = (index + 1) % self.cfg.accumulate == 0 or self.last(index)
            with contextlib.nullcontext() if sync else self.model.no_sync():
                loss = F.mse_loss(self.model(x).squeeze(1), y)
                (loss / self.cfg.accumulate).backward()
            total += loss.item()
            if sync:
                self.optimizer.step()
                self.optimizer.zero_grad()
                syncs += 1
        return total / len(self.loader), syncs


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    cfg, rank = Cfg(), dist.get_rank()
    loop = Loop(cfg, rank)
    for epoch in range(cfg.epochs):
        loss, syncs = loop.epoch()
        rows = [None] * dist.get_world_size()
        dist.all_gather_object(rows, (loss, syncs, len(loop.loader)))
        if rank == 0:
            log.info("epoch %d %s", epoch, rows)
            time.sleep(3)  # the dashboard upload
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
