# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["torchmetrics"]
# watch = "--give-up-after 8"
# outcome = "hang"
# causes_any = ["HD503", "HD505"]
# culprits = [1]
# lines = [38, 64, 93, 99]
# source = "https://github.com/pytorch/pytorch/issues/113228"
# ///
import logging
import multiprocessing as mp
import os
import tempfile
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torchmetrics.aggregation import MeanMetric

logging.basicConfig(level=logging.INFO, format="%(asctime)s [r" + os.environ["RANK"] + "] %(message)s")
log = logging.getLogger("captions")


class CaptionIndex:
    """Offsets of the captions in a data file; kept fresh by a thread of the main process."""

    def __init__(self, path, offsets, journal):
        self.path, self.offsets, self.journal = path, offsets, journal
        self._lock = threading.Lock()

    def lookup(self, i):
        with self._lock:
            return self.offsets[i]

    def _merge(self):
        with self._lock:
            for line in self.journal.read_text().splitlines():
                i, offset = map(int, line.split())
                time.sleep(0.02)
                self.offsets[i] = offset

    def refresh(self):
        if self.journal.exists():
            thread = threading.Thread(target=self._merge, name="index-merge", daemon=True)
            thread.start()
            return thread
        return None


class CaptionData(Dataset):
    def __init__(self, index):
        self.index = index

    def __len__(self):
        return len(self.index.offsets)

    def __getitem__(self, i):
        offset = self.index.lookup(i)
        gen = torch.Generator().manual_seed(offset)
        x = torch.randn(12, generator=gen)
        return x, x.sum().reshape(1)


def prepare(root, rank, count=96):
    """Writes what the crawler leaves: an offset table, and a journal of late changes."""
    path = root / f"part{rank}.dat"
    path.touch()
    journal = root / f"part{rank}.journal"
    return CaptionIndex(path, [7 * i for i in range(count)], journal)


class Fitter:
    def __init__(self, index):
        torch.manual_seed(3)
        self.index = index
        self.model = DDP(nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 1)))
        self.opt = torch.optim.SGD(self.model.parameters(), lr=1e-2)
        self.mean = MeanMetric()

    def loader(self):
        return DataLoader(
            CaptionData(self.index), batch_size=8, num_workers=1, multiprocessing_context=mp.get_context("fork"),
        )

    def epoch(self):
        self.index.refresh()
        for x, y in self.loader():
            loss = nn.functional.mse_loss(self.model(x), y)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            self.mean.update(loss.item())
        value = self.mean.compute().item()
        self.mean.reset()
        return value


def crawl(root, rank, epoch):
    """Late changes come in while the job runs: the crawler drops them as a journal."""
    changes = {(1, 2): range(150)}.get((rank, epoch), ())
    if changes:
        (root / f"part{rank}.journal").write_text("\n".join(f"{i % 96} {i}" for i in changes))


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    root = Path(tempfile.gettempdir()) / f"captions_{os.environ['MASTER_PORT']}"
    root.mkdir(parents=True, exist_ok=True)
    fitter = Fitter(prepare(root, rank))
    for epoch in range(5):
        crawl(root, rank, epoch)
        log.info("epoch %d loss %.4f", epoch, fitter.epoch())
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
