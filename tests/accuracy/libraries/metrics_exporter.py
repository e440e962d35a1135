# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "hang"
# causes_any = ["HD701", "HD101", "HD102"]
# culprits_any = [[3]]
# lines = [44, 92, 94, 114]
# branch = ["not files", "p.stat().st_size >= self.cfg.minimum", "not export(cfg, metrics, exporter, name)"]
# source = "https://github.com/lincc-frameworks/hyrax/pull/1011"
# ///
"""Embedding export: files dealt out to ranks, a metrics thread beside each. In the second collection the last rank has no file and returns from main.
Its metrics thread is no daemon and keeps the process; the others wait for it in the collection's summary."""
import logging
import threading
import time
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

log = logging.getLogger("export")


@dataclass
class ExportConfig:
    root: Path = Path("collections")
    collections: dict = field(default_factory=lambda: {"news": 12, "patents": 7, "forum": 9})
    minimum: int = 200
    hidden: int = 16


class Metrics(threading.Thread):
    """Writes a line every few seconds, for the dashboard."""

    def __init__(self, path: Path, interval=5.0):
        super().__init__(name="metrics")
        self.path, self.interval = path, interval
        self.values, self.stopped = {}, threading.Event()
        self.start()

    def run(self):
        while not self.stopped.wait(self.interval):
            self.path.write_text(repr(self.values))

    def count(self, name, n=1):
        self.values[name] = self.values.get(name, 0) + n

    def close(self):
        self.stopped.set()
        self.join()


class Collection:
    def __init__(self, cfg: ExportConfig, name: str):
        self.cfg, self.name, self.folder = cfg, name, cfg.root / name

    def create(self, n):
        self.folder.mkdir(parents=True, exist_ok=True)
        for i in range(n):
            size = 150 if self.name == "patents" and i == 3 else 300 + 10 * i
            (self.folder / f"{i:03d}.txt").write_text("x" * size)

    def share(self, rank, world):
        every = sorted(self.folder.glob("*.txt"))
        return [p for p in every[rank::world] if p.stat().st_size >= self.cfg.minimum]


class Exporter:
    def __init__(self, cfg: ExportConfig):
        torch.manual_seed(0)
        self.cfg, self.encoder = cfg, nn.Linear(8, cfg.hidden)

    @torch.no_grad()
    def encode(self, path: Path):
        text = path.read_text()
        x = torch.tensor([[len(text) * (k + 1) % 31 for k in range(8)]], dtype=torch.float)
        return self.encoder(x).squeeze(0)

    def summarise(self, vectors):
        total = torch.stack(vectors).sum(0)
        count = torch.tensor([float(len(vectors))])
        dist.all_reduce(total)
        dist.all_reduce(count)
        return total / count


def export(cfg: ExportConfig, metrics: Metrics, exporter: Exporter, name: str):
    rank, world = dist.get_rank(), dist.get_world_size()
    files = Collection(cfg, name).share(rank, world)
    if not files:
        log.warning("[rank %d] nothing to do in %s", rank, name)
        return False
    vectors = [exporter.encode(p) for p in files]
    metrics.count(name, len(vectors))
    mean = exporter.summarise(vectors)
    log.info("[rank %d] %s: %d files, |mean| %.3f", rank, name, len(files), mean.norm())
    return True


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    cfg = ExportConfig()
    if dist.get_rank() == 0:
        for name, n in cfg.collections.items():
            Collection(cfg, name).create(n)
    dist.barrier()
    exporter, metrics = Exporter(cfg), Metrics(Path(f"metrics{dist.get_rank()}.txt"))
    for name in cfg.collections:
        if not export(cfg, metrics, exporter, name):
            return
        time.sleep(0.3)
    metrics.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
