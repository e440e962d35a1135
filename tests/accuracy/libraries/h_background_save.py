# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = ["torchdata"]
# outcome = "healthy"
# ///
import logging
import os
import queue
import tempfile
import threading
import time
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn as nn
from torch.utils.data import Dataset
from torchdata.stateful_dataloader import StatefulDataLoader

log = logging.getLogger("bg")


@dataclass
class Config:
    samples: int = 48
    batch: int = 4
    epochs: int = 2
    review_seconds: float = 12.0
    root: str = os.path.join(tempfile.gettempdir(), f"bg_{os.environ.get('MASTER_PORT', '0')}")


class SlowRows(Dataset):
    def __init__(self, n, rank):
        self.n = n
        self.delay = [0.01, 0.01, 0.12, 0.01][rank % 4]

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        time.sleep(self.delay)
        g = torch.Generator().manual_seed(i)
        return torch.randn(6, generator=g)


class MetricShipper(threading.Thread):
    """Spends nearly all its life in queue.get and goes when it sees the sentinel."""

    def __init__(self):
        super().__init__(name="shipper")
        self.inbox = queue.Queue()
        self.seen = 0

    def run(self):
        while (item := self.inbox.get()) is not None:
            self.seen += 1
            time.sleep(0.05)

    def close(self):
        self.inbox.put(None)
        self.join()


class Saver:
    def __init__(self, cfg):
        self.cfg = cfg
        self.group = dist.new_group(backend="gloo", timeout=timedelta(hours=1))
        self.last = None

    def save(self, step, model):
        if self.last is not None:
            self.last.result()
        state = {"model": model.state_dict()}
        self.last = dcp.async_save(state, checkpoint_id=f"{self.cfg.root}/{step}", process_group=self.group)

    def finish(self):
        if self.last is not None:
            self.last.result()


def review(model, seconds):
    """A careful look at the weights; done by one process while the others wait for the verdict."""
    until = time.monotonic() + seconds
    worst = 0.0
    while time.monotonic() < until:
        x = torch.randn(64, 6)
        worst = max(worst, model(x).abs().max().item())
        time.sleep(0.01)
    return worst


class Trainer:
    def __init__(self, cfg, rank):
        self.cfg, self.rank = cfg, rank
        self.model = nn.Linear(6, 6)
        self.ddp = nn.parallel.DistributedDataParallel(self.model)
        self.opt = torch.optim.SGD(self.ddp.parameters(), lr=0.01)
        self.loader = StatefulDataLoader(SlowRows(cfg.samples, rank), cfg.batch, num_workers=1)
        self.shipper = MetricShipper()
        self.saver = Saver(cfg)

    def epoch(self, number):
        for step, x in enumerate(self.loader, 1):
            loss = (self.ddp(x) - x).pow(2).mean()
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            self.shipper.inbox.put(loss.item())
            if step % 5 == 0:
                self.saver.save(number * 100 + step, self.model)

    def verdict(self):
        box = [None]
        if self.rank == 3:
            with torch.no_grad():
                box = [review(self.model, self.cfg.review_seconds)]
        dist.broadcast_object_list(box, src=3)
        return box[0]

    def fit(self):
        self.shipper.start()
        for number in range(self.cfg.epochs):
            self.epoch(number)
            if self.verdict() > 1e6:
                break
        self.saver.finish()
        self.shipper.close()


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", timeout=timedelta(hours=1))
    trainer = Trainer(Config(), dist.get_rank())
    trainer.fit()
    dist.barrier()
    log.info("rank %d shipped %d", trainer.rank, trainer.shipper.seen)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
