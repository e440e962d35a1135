# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["torchmetrics"]
# outcome = "hang"
# causes_any = ["HD109", "HD101"]
# culprits = [2]
# lines = [56, 62, 67, 70]
# branch = ["self.active", "self.rank in self.wanted", "self.wanted"]
# source = "https://github.com/Lightning-AI/torchmetrics/issues/938"
# ///
"""Plain DDP with torchmetrics. A reporter speaks for the ranks named in REPORT_RANKS, by default the last one, and asks the
collection for its values."""
import logging
import os
import sys
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MulticlassF1Score

log = logging.getLogger("intent")


@dataclass
class Hyper:
    words: int = 40
    dim: int = 12
    intents: int = 5
    batch: int = 8
    epochs: int = 3
    report_every: int = 6


class IntentModel(nn.Module):
    def __init__(self, h):
        super().__init__()
        self.embed = nn.EmbeddingBag(h.words, h.dim, mode="mean")
        self.classify = nn.Linear(h.dim, h.intents)

    def forward(self, ids):
        return self.classify(self.embed(ids))


class Reporter:
    """Prints running numbers; the last rank by default because rank 0's stdout is captured by the launcher."""

    def __init__(self, metrics, every, rank, world):
        self.metrics, self.every, self.rank = metrics, every, rank
        self.wanted = {int(r) for r in os.environ.get("REPORT_RANKS", str(world - 1)).split(",")}
        self.stream = sys.stdout
        self.lines = 0

    @property
    def active(self):
        return self.rank in self.wanted

    def __call__(self, step, loss):
        if step % self.every:
            return
        self.lines += self.active and self.emit(step, loss)

    def emit(self, step, loss):
        values = {k: round(v.item(), 3) for k, v in self.metrics.compute().items()}
        print(f"step {step} loss {loss:.3f} {values}", file=self.stream, flush=True)
        return True


def queries(h, n=480, seed=0):
    g = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, h.words, (n, 7), generator=g)
    return TensorDataset(ids, ids[:, 0] % h.intents)


def make_metrics(h):
    return MetricCollection({"acc": MulticlassAccuracy(h.intents, average="micro"), "f1": MulticlassF1Score(h.intents)})


def train(h, rank, world):
    torch.manual_seed(1)
    model = DDP(IntentModel(h))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    data = queries(h)
    sampler = DistributedSampler(data, seed=3)
    loader = DataLoader(data, batch_size=h.batch, sampler=sampler)
    metrics = make_metrics(h)
    reporter = Reporter(metrics, h.report_every, rank, world)
    step = 0
    for epoch in range(h.epochs):
        sampler.set_epoch(epoch)
        for ids, intent in loader:
            step += 1
            logits = model(ids)
            loss = F.cross_entropy(logits, intent)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            metrics.update(logits.detach(), intent)
            reporter(step, loss.item())
        metrics.reset()
    return step


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    steps = train(Hyper(), dist.get_rank(), dist.get_world_size())
    log.info("finished %d steps", steps)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
