# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["torchmetrics"]
# outcome = "hang"
# causes_any = ["HD109", "HD101", "HD102", "HD106"]
# culprits = [1]
# culprits_any = [[0, 2]]
# lines = [56, 55, 49, 80]
# branch = ["source not in self.metrics", "self.metrics.items()", "sorted(self.metrics"]
# source = "https://github.com/Lightning-AI/pytorch-lightning/issues/20223"
# ///
"""Domain-mixture training: accuracy by text source (torchmetrics) after every round, then a checkpoint."""
import logging
import os
import tempfile
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn as nn
from torchmetrics.classification import MulticlassAccuracy

warnings.filterwarnings("ignore")
log = logging.getLogger("domains")
CLASSES = 3


class Mixture:
    """Batches of (source, features, labels); the sources follow the crawl order of the shard."""

    ORDER = {0: ["wiki", "news", "forum"], 1: ["wiki", "news", "forum", "patents"], 2: ["news", "wiki", "forum"]}

    def __init__(self, rank, batch=24):
        self.sources, self.batch = self.ORDER[rank % 3], batch
        self.g = torch.Generator().manual_seed(rank)

    def round(self, batches=12):
        for i in range(batches):
            x = torch.randn(self.batch, 6, generator=self.g)
            yield self.sources[i % len(self.sources)], x, x[:, :CLASSES].argmax(1)


class BySource:
    def __init__(self):
        self.metrics = {}

    def update(self, source, scores, labels):
        if source not in self.metrics:
            self.metrics[source] = MulticlassAccuracy(num_classes=CLASSES, average="micro")
        self.metrics[source].update(scores, labels)

    def results(self):
        table = {}
        for source, metric in sorted(self.metrics.items()):
            value = metric.compute()
            table[source] = round(value.item(), 4)
            metric.reset()
        return table


class Mixer:
    def __init__(self, rank, world, root):
        self.rank, self.world, self.root = rank, world, root
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, CLASSES))
        self.data, self.by_source = Mixture(rank), BySource()

    def step(self, source, x, y, lr=0.3):
        scores = self.model(x)
        self.by_source.update(source, scores.detach(), y)
        self.model.zero_grad()
        nn.functional.cross_entropy(scores, y).backward()
        with torch.no_grad():
            for p in self.model.parameters():
                dist.all_reduce(p.grad)
                p -= lr * p.grad / self.world

    def checkpoint(self, number):
        dist.barrier()  # before the old file goes
        if self.rank == 0:
            torch.save(self.model.state_dict(), self.root / "latest.pt")

    def run(self, rounds):
        for number in range(rounds):
            for source, x, y in self.data.round():
                self.step(source, x, y)
            table = self.by_source.results()
            log.info("round %d: %s", number, table)
            self.checkpoint(number)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    logging.basicConfig(level=logging.INFO, format=f"({rank}) %(message)s")
    root = Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / "domains"
    root.mkdir(parents=True, exist_ok=True)
    Mixer(rank, dist.get_world_size(), root).run(rounds=6)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
