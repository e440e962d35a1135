# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = ["lightning"]
# outcome = "hang"
# causes_any = ["HD103", "HD102"]
# culprits = [1]
# lines = [63, 86, 102, 103, 104, 112, 113]
# branch = ["loss > self.median(epoch) * self.slack", "except TrialPruned", "raise TrialPruned", "self.pruner.hopeless(epoch, loss)"]
# source = "https://github.com/optuna/optuna-examples/issues/101"
# ///
"""Hyper-parameter sweep with Lightning Fabric: trials that look hopeless against the median of earlier trials are pruned
by an exception, the sweep goes on with the next trial."""
import logging
import math
import os
import statistics
from collections import defaultdict
from dataclasses import dataclass
from datetime import timedelta

import lightning as L
import torch
from lightning.fabric.strategies import DDPStrategy
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
log = logging.getLogger("sweep")


class TrialPruned(Exception):
    pass


@dataclass(frozen=True)
class Trial:
    number: int
    lr: float
    width: int
    dropout: float = 0.0


@dataclass
class SweepConfig:
    features: int = 8
    rows: int = 64
    epochs: int = 4
    batch_size: int = 8


class MedianPruner:
    """Compares with the median of the finished trials at the same epoch."""

    def __init__(self, slack=1.15, startup=1):
        self.slack, self.startup = slack, startup
        self.seen = defaultdict(list)

    def median(self, epoch):
        values = self.seen[epoch]
        return statistics.median(values) if len(values) >= self.startup else math.inf

    def hopeless(self, epoch, loss):
        if loss > self.median(epoch) * self.slack:
            return True
        self.seen[epoch].append(loss)
        return False


def grid():
    for number, (lr, width) in enumerate([(0.002, 16), (0.02, 16), (0.05, 12), (0.1, 8)]):
        yield Trial(number, lr, width)


class Objective:
    def __init__(self, fabric, cfg):
        self.fabric, self.cfg = fabric, cfg
        self.pruner = MedianPruner()
        gen = torch.Generator().manual_seed(fabric.global_rank)
        x = torch.randn(cfg.rows, cfg.features, generator=gen)
        y = x[:, :4].sum(-1) * (1.0 if fabric.global_rank != 1 else -0.6)  # region 1 reports in the old convention
        self.train = DataLoader(TensorDataset(x, y), batch_size=cfg.batch_size)

    def build(self, trial):
        torch.manual_seed(trial.number)
        net = nn.Sequential(nn.Linear(self.cfg.features, trial.width), nn.ReLU(), nn.Linear(trial.width, 1))
        return self.fabric.setup(net, torch.optim.SGD(net.parameters(), lr=trial.lr))

    def run_epoch(self, model, optimizer):
        total = 0.0
        for x, y in self.train:
            loss = nn.functional.mse_loss(model(x).squeeze(-1), y)
            optimizer.zero_grad()
            self.fabric.backward(loss)
            optimizer.step()
            total += loss.item()
        return total / len(self.train)

    def __call__(self, trial):
        model, optimizer = self.build(trial)
        loss = math.inf
        for epoch in range(self.cfg.epochs):
            loss = self.run_epoch(model, optimizer)
            if self.pruner.hopeless(epoch, loss):
                raise TrialPruned(f"trial {trial.number} at epoch {epoch}: {loss:.3f}")
        return loss


def sweep(fabric, cfg):
    objective, results = Objective(fabric, cfg), {}
    for trial in grid():
        try:
            results[trial.number] = objective(trial)
        except TrialPruned as pruned:
            log.info("rank %d: %s", fabric.global_rank, pruned)
            results[trial.number] = math.nan
    fabric.barrier()
    fabric.print("results", results)


def main():
    torch.set_num_threads(1)
    fabric = L.Fabric(accelerator="cpu", devices=int(os.environ["WORLD_SIZE"]),
                      strategy=DDPStrategy(process_group_backend="gloo", timeout=timedelta(minutes=30)))
    fabric.launch()
    sweep(fabric, SweepConfig())


if __name__ == "__main__":
    main()
