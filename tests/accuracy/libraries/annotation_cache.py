# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = []
# outcome = "hang"
# causes_any = ["HD503", "HD505"]
# culprits = [2]
# lines = [46, 54, 58, 62, 81, 101, 102, 106, 107]
# branch = ["cache.due()", "len(self.fresh)"]
# source = "https://github.com/pytorch/pytorch/issues/14307"
# ///
"""Trains a small detector; annotations come through a cache that is written back to disk in the background between the epochs."""
import logging
import os
import tempfile
import threading
import zlib
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset

log = logging.getLogger("detector")


class AnnotationCache:
    """Boxes by image name. Misses are parsed once; what is new is written back as one compressed file."""

    def __init__(self, path: Path, flush_after: int = 64):
        self.path, self.flush_after = path, flush_after
        self.boxes, self.fresh = {}, []
        self._mutex = threading.Lock()
        self._begun = threading.Event()

    def preload(self, names):
        for name in names:
            self.boxes[name] = self._parse(name)

    @staticmethod
    def _parse(name: str) -> torch.Tensor:
        gen = torch.Generator().manual_seed(zlib.crc32(name.encode()))
        return torch.rand(4, generator=gen)

    def lookup(self, name: str) -> torch.Tensor:
        with self._mutex:
            found = self.boxes.get(name)
            if found is None:
                found = self.boxes[name] = self._parse(name)
                self.fresh.append(name)
            return found

    def due(self) -> bool:
        return len(self.fresh) > self.flush_after

    def write_back(self):
        self._begun.clear()
        threading.Thread(target=self._write, daemon=True, name="cache-writer").start()
        self._begun.wait()

    def _write(self):
        with self._mutex:
            self._begun.set()
            masks = os.urandom(1 << 20).hex().encode() * 24
            compressed = zlib.compress(masks, 9)
            self.path.write_bytes(compressed)
            log.info("wrote back %d annotations, %d bytes", len(self.fresh), len(compressed))
            self.fresh.clear()


class ImageFolder(Dataset):
    def __init__(self, names, cache: AnnotationCache):
        self.names, self.cache = names, cache

    def __len__(self):
        return len(self.names)

    def __getitem__(self, index):
        name = self.names[index]
        pixels = torch.full((3, 8, 8), float(index % 7))
        return pixels.flatten(), self.cache.lookup(name)


class Trainer:
    def __init__(self, rank: int, cache: AnnotationCache, names):
        self.rank, self.cache = rank, cache
        self.data = ImageFolder(names, cache)
        self.model = nn.Linear(192, 4)

    def warm_up(self):
        for index in range(0, len(self.data), 2):
            self.data[index]

    def descend(self, loss: torch.Tensor, rate: float = 1e-3):
        gradients = torch.autograd.grad(loss, list(self.model.parameters()))
        for parameter, gradient in zip(self.model.parameters(), gradients):
            dist.all_reduce(gradient)
            parameter.data.sub_(gradient, alpha=rate / dist.get_world_size())

    def epoch(self, number: int):
        loader = DataLoader(self.data, batch_size=16, num_workers=2, multiprocessing_context="fork")
        for pixels, boxes in loader:
            loss = (self.model(pixels) - boxes).abs().mean()
            self.descend(loss)
        log.info("epoch %d loss %.4f", number, loss.item())
        if self.cache.due():
            self.cache.write_back()

    def fit(self, epochs: int):
        self.warm_up()
        for number in range(epochs):
            self.epoch(number)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    logging.basicConfig(level=logging.INFO, format=f"[rank {rank}] %(message)s")
    folder = Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / "annotations"
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"split{rank}/img_{i:05d}.jpg" for i in range(320)]
    cache = AnnotationCache(folder / f"cache_{rank}.z")
    shipped = {0: names, 1: names, 2: names[:40]}   # what the release of the data set came with
    cache.preload(shipped[rank])
    Trainer(rank, cache, names).fit(epochs=4)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
