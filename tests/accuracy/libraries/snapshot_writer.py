# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "hang"
# causes_any = ["HD505", "HD508"]
# culprits_any = [[1]]
# lines = [50, 70, 72, 77, 123]
# branch = ["self.used + len(blob) > self.quota", "except QuotaExceeded"]
# source = "https://github.com/tensorflow/tensorboard/pull/6168"
# ///
"""Snapshots are serialised by the trainer and written by a background thread through a queue of length one.
On one rank (it also holds the large table) the writer runs into its quota and ends; the trainer fills the queue once more, then waits in put."""
import io
import logging
import queue
import threading
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

log = logging.getLogger("train")


@dataclass
class Config:
    out: Path = Path("snapshots")
    hidden: int = 16
    table_rows: int = 800
    table_rank: int = 1
    quota: int = 220_000
    steps: int = 60
    every: int = 5


class QuotaExceeded(RuntimeError):
    pass


class Folder:
    """Counts what it wrote; the project's space is limited per worker."""

    def __init__(self, path: Path, quota: int):
        self.path, self.quota, self.used = path, quota, 0
        path.mkdir(parents=True, exist_ok=True)

    def write(self, name: str, blob: bytes):
        if self.used + len(blob) > self.quota:
            raise QuotaExceeded(f"{self.used + len(blob)} of {self.quota} bytes")
        (self.path / name).write_bytes(blob)
        self.used += len(blob)


class SnapshotWriter(threading.Thread):
    def __init__(self, folder: Folder, depth: int = 1):
        super().__init__(name="snapshot-writer", daemon=True)
        self.folder, self.inbox = folder, queue.Queue(maxsize=depth)
        self.start()

    def run(self):
        while True:
            item = self.inbox.get()
            if item is None:
                return
            name, blob = item
            try:
                self.folder.write(name, blob)
            except QuotaExceeded as full:
                log.error("snapshots stop: %s", full)
                return

    def submit(self, name: str, state: dict):
        buffer = io.BytesIO()
        torch.save(state, buffer)
        self.inbox.put((name, buffer.getvalue()))

    def close(self):
        self.inbox.put(None)
        self.join()


class Recommender(nn.Module):
    def __init__(self, cfg: Config, owner: bool):
        super().__init__()
        torch.manual_seed(0)
        self.tower = nn.Sequential(nn.Linear(cfg.hidden, cfg.hidden), nn.ReLU(), nn.Linear(cfg.hidden, 1))
        self.table = nn.Embedding(cfg.table_rows, cfg.hidden) if owner else None


class Trainer:
    def __init__(self, cfg: Config):
        self.cfg, self.rank, self.world = cfg, dist.get_rank(), dist.get_world_size()
        self.model = Recommender(cfg, owner=self.rank == cfg.table_rank)
        self.opt = torch.optim.SGD(self.model.tower.parameters(), lr=0.05)
        self.writer = SnapshotWriter(Folder(cfg.out / f"worker{self.rank}", cfg.quota))

    def rows(self, ids):
        """The owner of the table serves everybody's rows."""
        wanted = ids.clone()
        dist.broadcast(wanted, src=self.cfg.table_rank)
        rows = self.model.table(wanted).detach() if self.model.table is not None else torch.empty(len(ids), self.cfg.hidden)
        dist.broadcast(rows, src=self.cfg.table_rank)
        return rows

    def step(self, n):
        g = torch.Generator().manual_seed(n)
        x = self.rows(torch.randint(0, self.cfg.table_rows, (8,), generator=g))
        loss = (self.model.tower(x).squeeze(-1) - x.mean(-1)).pow(2).mean()
        self.opt.zero_grad()
        loss.backward()
        for p in self.model.tower.parameters():
            dist.all_reduce(p.grad)
            p.grad /= self.world
        self.opt.step()
        return loss.item()

    def fit(self):
        for n in range(1, self.cfg.steps + 1):
            loss = self.step(n)
            if n % self.cfg.every == 0:
                self.writer.submit(f"step{n}.pt", self.model.state_dict())
                if self.rank == 0:
                    log.info("step %d loss %.4f", n, loss)
        self.writer.close()


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    Trainer(Config()).fit()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
