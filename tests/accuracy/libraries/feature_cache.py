# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "hang"
# causes_any = ["HD503", "HD505"]
# culprits_any = [[1]]
# lines = [45, 48, 52, 62, 63, 98]
# branch = ["self.age > self.cfg.max_age", "self.stale"]
# source = "https://github.com/pytorch/pytorch/issues/75147"
# ///
"""A feature cache shared by dataset and a refreshing thread, guarded by a lock; DataLoader workers are forked each epoch.
On one rank the features are stale, the thread reloads them under the lock, and the epoch's workers are born with the lock taken."""
import logging
import threading
import time
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset

log = logging.getLogger("features")


@dataclass
class CacheConfig:
    items: int = 48
    dim: int = 12
    max_age: int = 3
    epochs: int = 6
    batch: int = 8
    workers: int = 2
    aged_rank: int = 1


class FeatureCache:
    def __init__(self, cfg: CacheConfig, age: int):
        self.cfg, self.age = cfg, age
        self.lock = threading.Lock()
        self.table = torch.randn(cfg.items, cfg.dim)

    @property
    def stale(self):
        return self.age > self.cfg.max_age

    def lookup(self, i):
        with self.lock:
            return self.table[i].clone()

    def _reload(self):
        with self.lock:
            fresh = []
            for _ in range(self.cfg.items):
                time.sleep(0.08)
                fresh.append(torch.randn(self.cfg.dim))
            self.table, self.age = torch.stack(fresh), 0

    def maintain(self):
        """Called between epochs; never makes the trainer wait."""
        self.age += 1
        if self.stale:
            threading.Thread(target=self._reload, name="feature-reload", daemon=True).start()


class FeatureDataset(Dataset):
    def __init__(self, features: FeatureCache, rank: int, world: int):
        self.features = features
        self.ids = list(range(rank, features.cfg.items, world))

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, n):
        x = self.features.lookup(self.ids[n])
        return x, x.roll(1)


class Model(nn.Module):
    def __init__(self, dim):
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(dim, 2 * dim), nn.ReLU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        return self.net(x)


class Runner:
    def __init__(self, cfg: CacheConfig):
        self.cfg, self.rank, self.world = cfg, dist.get_rank(), dist.get_world_size()
        self.features = FeatureCache(cfg, age=2 if self.rank == cfg.aged_rank else -10)
        self.loader = DataLoader(FeatureDataset(self.features, self.rank, self.world), batch_size=cfg.batch, num_workers=cfg.workers)
        self.model = Model(cfg.dim)
        self.opt = torch.optim.Adam(self.model.parameters(), lr=1e-3)

    def epoch(self, n):
        for x, y in self.loader:
            loss = (self.model(x) - y).pow(2).mean()
            self.opt.zero_grad()
            loss.backward()
            for p in self.model.parameters():
                dist.all_reduce(p.grad)
                p.grad /= self.world
            self.opt.step()
        log.info("[rank %d] epoch %d loss %.3f", self.rank, n, loss.item())

    def run(self):
        for n in range(self.cfg.epochs):
            self.epoch(n)
            self.features.maintain()
            time.sleep(0.3)


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    Runner(CacheConfig()).run()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
