# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = []
# watch = "--give-up-after 8"
# outcome = "hang"
# causes_any = ["HD503"]
# culprits = [1]
# lines = [53, 69, 98, 126, 127, 130]
# branch = ["self.pending_bytes >= self.flush_bytes", "noise > self.cfg.loud"]
# source = "https://github.com/ultralytics/ultralytics/pull/26085"
# ///
import ctypes
import json
import logging
import os
import signal
import tempfile
import threading
import time
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

log = logging.getLogger("vision")


@dataclass
class LoaderConfig:
    images: int = 24
    batch: int = 4
    workers: int = 1
    epochs: int = 6
    loud: float = 2.0


class UsageStats:
    """Counts decoder events and ships them to a slow collector from time to time."""

    def __init__(self, path, flush_bytes=900):
        self.path = path
        self.flush_bytes = flush_bytes
        self.mutex = threading.Lock()
        self.pending = []
        self.pending_bytes = 0
        self.shipped = 0

    def record(self, **event):
        line = json.dumps(event)
        with self.mutex:
            self.pending.append(line)
            self.pending_bytes += len(line)

    def _ship(self, begun):
        with self.mutex:
            begun.set()
            with open(self.path, "a") as fh:
                for line in self.pending:
                    fh.write(line + "\n")
                    time.sleep(0.1)
            self.shipped += len(self.pending)
            self.pending.clear()
            self.pending_bytes = 0

    def maybe_flush(self):
        if self.pending_bytes >= self.flush_bytes:
            begun = threading.Event()
            threading.Thread(target=self._ship, args=(begun,), daemon=True).start()
            begun.wait()


def die_with_parent(_):
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


class Images(Dataset):
    FORMATS = ("jpeg", "png", "webp")

    SENSORS = {"a": 1.0, "b": 3.5, "c": 0.8}

    def __init__(self, n, sensor, stats):
        self.n = n
        self.gain = self.SENSORS[sensor]
        self.stats = stats

    def __len__(self):
        return self.n

    def _decode(self, index):
        g = torch.Generator().manual_seed(index)
        return self.gain * torch.randn(3, 8, 8, generator=g)

    def __getitem__(self, index):
        image = self._decode(index)
        self.stats.record(index=index, format=self.FORMATS[index % 3])
        return image, index % 5


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.fc = nn.Linear(4, 5)

    def forward(self, x):
        return self.fc(self.conv(x).relu().mean((2, 3)))


class Trainer:
    def __init__(self, cfg, rank, stats):
        self.cfg, self.rank, self.stats = cfg, rank, stats
        self.loader = DataLoader(Images(cfg.images, "abc"[rank % 3], stats), cfg.batch, num_workers=cfg.workers, worker_init_fn=die_with_parent)
        self.model = nn.parallel.DistributedDataParallel(Classifier())
        self.opt = torch.optim.SGD(self.model.parameters(), lr=0.05)

    def _observe(self, x, y):
        noise = x.std().item()
        if noise > self.cfg.loud:
            self.stats.record(rank=self.rank, std=round(noise, 3), labels=y.tolist())
        return nn.functional.cross_entropy(self.model(x), y)

    def epoch(self, n):
        self.stats.maybe_flush()
        for x, y in self.loader:
            loss = self._observe(x, y)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
        log.info("rank %d epoch %d loss %.3f", self.rank, n, loss.item())

    def fit(self):
        for n in range(self.cfg.epochs):
            self.epoch(n)


def main():
    logging.basicConfig(level=logging.INFO)
    torch.manual_seed(0)
    dist.init_process_group("gloo", timeout=timedelta(hours=1))
    rank = dist.get_rank()
    name = f"usage_{os.environ['MASTER_PORT']}_{rank}.jsonl"
    stats = UsageStats(os.path.join(tempfile.gettempdir(), name))
    Trainer(LoaderConfig(), rank, stats).fit()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
