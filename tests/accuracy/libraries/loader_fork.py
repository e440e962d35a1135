# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = ["torchdata"]
# outcome = "hang"
# outcome_any = ["hang", "slow"]
# causes_any = ["HD503", "HD505"]
# culprits = [2]
# lines = [64, 71, 72, 74, 86, 105]
# branch = ["cold_names", "not self.local(n).exists()"]
# source = "https://github.com/pytorch/pytorch/issues/75147"
# ///
"""Retrieval training over shards that are copied from slow storage into a node-local cache.

Rank 2's cache lacks a shard of the second epoch, so a thread copies it under the cache's lock while the DataLoader forks its
worker: the worker's copy of the lock is never released.
"""
import logging
import tempfile
import threading
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import Dataset
from torchdata.stateful_dataloader import StatefulDataLoader

log = logging.getLogger("retrieval")


@dataclass
class CacheConfig:
    shards_per_epoch: int = 2
    rows: int = 32
    dim: int = 12
    chunk_delay: float = 0.25


class ShardCache:
    def __init__(self, remote, local_dir, cfg):
        self.remote, self.dir, self.cfg = remote, local_dir, cfg
        self.dir.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._open = {}

    def local(self, name):
        return self.dir / f"{name}.pt"

    def fetch(self, name):
        with self._lock:
            source, target = self.remote / f"{name}.pt", self.local(name)
            part = target.with_suffix(".part")
            data = source.read_bytes()
            with open(part, "wb") as f:
                for start in range(0, len(data), max(1, len(data) // 16)):
                    f.write(data[start:start + max(1, len(data) // 16)])
                    time.sleep(self.cfg.chunk_delay)
            part.rename(target)

    def rows(self, name):
        with self._lock:
            if name not in self._open:
                path = self.local(name)
                self._open[name] = torch.load(path if path.exists() else self.remote / path.name)
            return self._open[name]

    def warm(self, names):
        cold_names = [n for n in names if not self.local(n).exists()]
        if cold_names:
            log.info("fetching %s", cold_names)
            threading.Thread(target=lambda: [self.fetch(n) for n in cold_names], name="cache-warmer", daemon=True).start()


class PairDataset(Dataset):
    def __init__(self, cache, names, rank, world):
        self.cache, self.names, self.rank, self.world = cache, names, rank, world

    def __len__(self):
        return len(self.names) * self.cache.cfg.rows // self.world

    def __getitem__(self, i):
        flat = i * self.world + self.rank
        rows = self.cache.rows(self.names[flat // self.cache.cfg.rows])
        return rows[flat % self.cache.cfg.rows]


class RetrievalJob:
    def __init__(self, cfg, remote, local_root):
        self.cfg, self.rank, self.world = cfg, dist.get_rank(), dist.get_world_size()
        self.cache = ShardCache(remote, local_root / f"rank{self.rank}", cfg)
        self.model = DDP(torch.nn.Linear(cfg.dim, cfg.dim))
        self.opt = torch.optim.SGD(self.model.parameters(), lr=0.01)

    def names(self, epoch):
        return [f"shard-{epoch * self.cfg.shards_per_epoch + k:03d}" for k in range(self.cfg.shards_per_epoch)]

    def run_epoch(self, epoch):
        names = self.names(epoch)
        self.cache.warm(names)
        data = PairDataset(self.cache, names, self.rank, self.world)
        loader = StatefulDataLoader(data, batch_size=4, num_workers=1, multiprocessing_context="fork")
        for step, batch in enumerate(loader):
            loss = (self.model(batch) - batch).pow(2).mean()
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
        if self.rank == 0:
            log.info("epoch %d: %d steps, loss %.4f", epoch, step + 1, loss.item())


def stage(remote, local_root, cfg, epochs):
    """The shared store, and what earlier jobs of this node left in the caches."""
    remote.mkdir()
    for i in range(epochs * cfg.shards_per_epoch):
        torch.save(torch.randn(cfg.rows, cfg.dim), remote / f"shard-{i:03d}.pt")
    for rank in range(dist.get_world_size()):
        folder = local_root / f"rank{rank}"
        folder.mkdir(parents=True)
        for path in sorted(remote.glob("*.pt")):
            if rank != 2 or path.stem != "shard-003":
                (folder / path.name).write_bytes(path.read_bytes())


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    box = [tempfile.mkdtemp(prefix="retrieval-") if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(box, src=0)
    root, cfg = Path(box[0]), CacheConfig()
    if dist.get_rank() == 0:
        stage(root / "remote", root / "cache", cfg, epochs=3)
    dist.barrier()
    job = RetrievalJob(cfg, root / "remote", root / "cache")
    for epoch in range(3):
        job.run_epoch(epoch)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
