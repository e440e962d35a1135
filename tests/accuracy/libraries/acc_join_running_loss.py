# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = ["accelerate"]
# outcome = "hang"
# causes_any = ["HD102", "HD106", "HD101"]
# culprits = [2]
# lines = [52, 82, 86, 87, 88]
# source = "https://github.com/pytorch/pytorch/issues/38174"
# ///
"""Accelerate training with uneven data per process: a Join context lets the processes that ran out shadow the
gradient reductions of the others; the running loss of all processes is shown on the way."""
import logging
import os
from dataclasses import dataclass
from datetime import timedelta

import torch
from accelerate import Accelerator, InitProcessGroupKwargs
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.utils.data import DataLoader, TensorDataset

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
log = logging.getLogger("uneven")


@dataclass
class UnevenConfig:
    features: int = 10
    batch_size: int = 4
    rows: tuple = (80, 80, 68, 80)
    epochs: int = 2
    lr: float = 0.02


class Regressor(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(features, 16), nn.Tanh(), nn.Linear(16, 1))

    def forward(self, x):
        return self.net(x).squeeze(-1)


class RunningLoss:
    """Mean of the last values over all processes."""

    def __init__(self, accelerator, momentum=0.9):
        self.accelerator, self.momentum, self.value = accelerator, momentum, None

    def update(self, loss):
        everyone = self.accelerator.gather(loss.detach().reshape(1))
        mean = everyone.mean().item()
        self.value = mean if self.value is None else self.momentum * self.value + (1 - self.momentum) * mean
        return self.value


def region_loader(cfg, rank):
    """Every process holds the measurements of one region."""
    gen = torch.Generator().manual_seed(rank)
    x = torch.randn(cfg.rows[rank], cfg.features, generator=gen)
    y = x[:, 0] - 0.5 * x[:, 1] + 0.1 * rank
    return DataLoader(TensorDataset(x, y), batch_size=cfg.batch_size, shuffle=True, generator=gen)


class UnevenTraining:
    def __init__(self, cfg):
        self.cfg = cfg
        self.accelerator = Accelerator(cpu=True, kwargs_handlers=[InitProcessGroupKwargs(backend="gloo", timeout=timedelta(minutes=30))])
        torch.manual_seed(0)
        model = Regressor(cfg.features)
        optimizer = torch.optim.SGD(model.parameters(), lr=cfg.lr)
        self.model, self.optimizer = self.accelerator.prepare(model, optimizer)
        self.loader = region_loader(cfg, self.accelerator.process_index)
        self.running = RunningLoss(self.accelerator)

    def batch(self, x, y):
        loss = nn.functional.mse_loss(self.model(x), y)
        self.accelerator.backward(loss)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return self.running.update(loss)

    def epoch(self, number):
        shown = None
        with Join([self.model]):
            for x, y in self.loader:
                shown = self.batch(x, y)
        self.accelerator.wait_for_everyone()
        self.accelerator.print(f"epoch {number} running loss {shown:.4f}")

    def fit(self):
        for number in range(self.cfg.epochs):
            self.epoch(number)


if __name__ == "__main__":
    torch.set_num_threads(1)
    UnevenTraining(UnevenConfig()).fit()
