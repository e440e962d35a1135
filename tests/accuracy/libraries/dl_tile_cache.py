# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "hang"
# causes_any = ["HD503", "HD505"]
# culprits_any = [[0], [1], [2]]
# lines = [55, 62, 74, 99]
# source = "https://github.com/pytorch/pytorch/issues/75147"
# ///
"""Satellite tiles with an in-memory header cache that a background thread refreshes; loader workers are forked anew
for every epoch."""
import logging
import threading
import time
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
log = logging.getLogger("tiles")


@dataclass
class TileConfig:
    tiles: int = 24
    bands: int = 6
    batch_size: int = 4
    workers: int = 2
    epochs: int = 12
    refresh: float = 0.4


class HeaderCache:
    """Georeference headers by tile; the lock guards the dictionary during a refresh."""
    archive_seconds = {2: 4.0}  # this host reads headers from the tape archive

    def __init__(self, cfg, rank):
        self.cfg, self.rank = cfg, rank
        self.lock = threading.Lock()
        self.headers = {i: {"gain": 1.0, "generation": 0} for i in range(cfg.tiles)}
        self.generation = 0
        self.stop = threading.Event()

    def start(self):
        threading.Thread(target=self._refresh_forever, name="header-refresh", daemon=True).start()
        return self

    def _refresh_forever(self):
        while not self.stop.wait(self.cfg.refresh):
            fresh = self.generation + 1
            with self.lock:
                time.sleep(self.archive_seconds.get(self.rank, 0.0) if fresh > 2 else 0.0)
                for header in self.headers.values():
                    header["generation"] = fresh
            self.generation = fresh

    def get(self, index):
        with self.lock:
            return dict(self.headers[index])


class Tiles(Dataset):
    def __init__(self, cfg, cache):
        self.cfg, self.cache = cfg, cache

    def __len__(self):
        return self.cfg.tiles

    def __getitem__(self, index):
        header = self.cache.get(index)
        gen = torch.Generator().manual_seed(index)
        pixels = torch.randn(self.cfg.bands, generator=gen) * header["gain"]
        return pixels, pixels.sum().reshape(1)


class TileTraining:
    def __init__(self, cfg):
        self.cfg, self.rank = cfg, dist.get_rank()
        torch.manual_seed(0)
        self.model = DDP(nn.Sequential(nn.Linear(cfg.bands, 12), nn.ReLU(), nn.Linear(12, 1)))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-2)
        self.cache = HeaderCache(cfg, self.rank).start()
        self.loader = DataLoader(Tiles(cfg, self.cache), batch_size=cfg.batch_size, num_workers=cfg.workers, shuffle=True)

    def batch(self, pixels, target):
        loss = nn.functional.mse_loss(self.model(pixels), target)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def fit(self):
        for epoch in range(self.cfg.epochs):
            started = time.time()
            losses = [self.batch(pixels, target) for pixels, target in self.loader]
            if self.rank == 0:
                log.info("epoch %d loss %.4f, %.1f s, headers of generation %d", epoch, sum(losses) / len(losses),
                         time.time() - started, self.cache.generation)


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    TileTraining(TileConfig()).fit()
    dist.destroy_process_group()
