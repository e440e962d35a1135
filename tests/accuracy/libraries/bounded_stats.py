# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "hang"
# causes_any = ["HD503"]
# culprits = [1]
# lines = [42, 54, 65, 66, 71]
# source = "https://github.com/RolnickLab/ami-data-companion/issues/140"
# ///
"""Every DataLoader worker reports what it decoded over a small multiprocessing queue that a thread of the rank drains. On rank 1 the
thread has died on a malformed report, so the queue fills up and the worker blocks in put()."""
import multiprocessing as mp
import threading
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class DataConfig:
    size: int = 400
    batch: int = 4
    capacity: int = 6
    broken: tuple = (1, 21)


class Images(Dataset):
    def __init__(self, cfg, rank, reports):
        self.cfg, self.rank, self.reports = cfg, rank, reports

    def __len__(self):
        return self.cfg.size

    def decode(self, i):
        return torch.full((6,), float(i % 9))

    def __getitem__(self, i):
        x = self.decode(i)
        value = "n/a" if (self.rank, i) == self.cfg.broken else float(x.mean())
        self.reports.put({"index": i, "mean": value})
        return x


class ReportThread(threading.Thread):
    def __init__(self, reports):
        super().__init__(name="decode-stats", daemon=True)
        self.reports, self.total = reports, 0.0

    def run(self):
        while True:
            report = self.reports.get()
            self.total += report["mean"] / 255.0


class Trainer:
    def __init__(self, cfg):
        self.rank, self.reports = dist.get_rank(), mp.Queue(cfg.capacity)
        self.loader = DataLoader(Images(cfg, self.rank, self.reports), batch_size=cfg.batch, num_workers=1, prefetch_factor=2)
        self.model = nn.parallel.DistributedDataParallel(nn.Linear(6, 2))
        self.stats = ReportThread(self.reports)

    def epoch(self):
        for x in self.loader:
            self.model(x).sum().backward()

    def fit(self):
        threading.excepthook = lambda args: None
        self.stats.start()
        self.epoch()
        dist.barrier()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    Trainer(DataConfig()).fit()
    dist.destroy_process_group()
