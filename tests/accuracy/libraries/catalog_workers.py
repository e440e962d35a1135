# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["torchdata"]
# watch = "--give-up-after 8"
# outcome = "hang"
# causes_any = ["HD503", "HD505", "HD504"]
# culprits = [1]
# lines = [46, 49, 71, 72, 85, 99, 108]
# branch = ["self.volume in self.unindexed", "self.catalog.stale()"]
# source = "https://github.com/huggingface/tokenizers/issues/187"
# ///
"""Streams images of a volume through torchdata's StatefulDataLoader; a thread keeps the volume's catalog fresh."""
import logging
import threading
import time
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch.utils.data import Dataset
from torchdata.stateful_dataloader import StatefulDataLoader

log = logging.getLogger("volumes")


@dataclass
class VolumeConfig:
    items: int = 120
    batch_size: int = 6
    workers: int = 1
    epochs: int = 2
    size: int = 12


class Catalog:
    """Offsets of the items within a volume, looked up by the readers and refreshed in the background."""

    def __init__(self, volume, items, unindexed=()):
        self.volume = volume
        self.items = items
        self.unindexed = set(unindexed)
        self.offsets = {i: i * 4096 for i in range(items)}
        self.lock = threading.Lock()

    def stale(self):
        return self.volume in self.unindexed

    def lookup(self, i):
        with self.lock:
            return self.offsets[i]

    def rescan(self):
        with self.lock:
            log.info("volume %d: rescanning", self.volume)
            fresh = {}
            for i in range(self.items):
                fresh[i] = i * 4096 + 512
                time.sleep(0.03)
            self.offsets = fresh
            self.unindexed.discard(self.volume)


class CatalogKeeper(threading.Thread):
    def __init__(self, catalog, period=60.0):
        super().__init__(name="catalog-keeper", daemon=True)
        self.catalog = catalog
        self.period = period

    def run(self):
        while True:
            if self.catalog.stale():
                self.catalog.rescan()
            time.sleep(self.period)


class VolumeDataset(Dataset):
    def __init__(self, cfg, catalog):
        self.cfg = cfg
        self.catalog = catalog

    def __len__(self):
        return self.cfg.items

    def __getitem__(self, i):
        offset = self.catalog.lookup(i)
        gen = torch.Generator().manual_seed(offset % 9973)
        return torch.rand(self.cfg.size, self.cfg.size, generator=gen), i % 3


class Segmenter:
    def __init__(self, cfg):
        torch.manual_seed(0)
        self.weight = torch.randn(cfg.size, 3) * 0.1

    def step(self, images, labels):
        w = self.weight.requires_grad_(True)
        loss = torch.nn.functional.cross_entropy((images @ w).mean(dim=1), labels)
        (grad,) = torch.autograd.grad(loss, w)
        dist.all_reduce(grad)
        self.weight = (w - 0.1 * grad / dist.get_world_size()).detach()
        return loss.item()


def run(cfg, catalog):
    loader = StatefulDataLoader(VolumeDataset(cfg, catalog), batch_size=cfg.batch_size, num_workers=cfg.workers)
    model = Segmenter(cfg)
    for epoch in range(cfg.epochs):
        for images, labels in loader:
            loss = model.step(images, labels)
        if dist.get_rank() == 0:
            log.info("epoch %d: loss %.4f", epoch, loss)


def main():
    logging.basicConfig(level=logging.INFO)
    dist.init_process_group("gloo")
    cfg = VolumeConfig()
    catalog = Catalog(volume=dist.get_rank(), items=cfg.items, unindexed=[1, 4])
    CatalogKeeper(catalog).start()
    dist.barrier()
    run(cfg, catalog)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
