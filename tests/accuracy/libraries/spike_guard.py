# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# outcome = "hang"
# causes_any = ["HD101", "HD102", "HD111", "HD109", "HD106"]
# culprits = [1]
# lines = [93, 46]
# branch = ["guard.rejects(value)", "len(self.history) >= self.warmup and value > self.factor * statistics.median(self.history)", "value > self.factor * statistics.median(self.history)"]
# source = "https://github.com/ecmwf/WeatherGenerator/pull/2718"
# ///
"""Autoregressive forecast training on gridded fields, with a guard against loss spikes."""
import logging
import statistics
from collections import deque
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

log = logging.getLogger("forecast")


@dataclass
class ForecastConfig:
    steps: int = 600
    cells: int = 24
    rows: int = 4
    lr: float = 2e-3
    spike_factor: float = 6.0
    warmup: int = 50
    log_every: int = 100


class SpikeGuard:
    """Rejects steps whose loss is far above the recent median."""

    def __init__(self, factor, warmup, size=200):
        self.factor = factor
        self.warmup = warmup
        self.history = deque(maxlen=size)
        self.rejected = 0

    def rejects(self, value):
        if len(self.history) >= self.warmup and value > self.factor * statistics.median(self.history):
            self.rejected += 1
            return True
        self.history.append(value)
        return False


class Reanalysis:
    """Fields of one region per worker; storms come with large amplitudes."""

    STORMS = {(1, 312): 9.0, (3, 655): 8.0}

    def __init__(self, cfg, region):
        self.cfg = cfg
        self.region = region
        self.g = torch.Generator().manual_seed(200 + region)

    def __iter__(self):
        for day in range(self.cfg.steps):
            now = torch.randn(self.cfg.rows, self.cfg.cells, generator=self.g)
            after = torch.roll(now, 1, -1) + 0.3 * torch.randn(now.shape, generator=self.g)
            scale = self.STORMS.get((self.region, day), 1.0)
            yield scale * now, scale * after


class Forecaster(nn.Module):
    def __init__(self, cells):
        super().__init__()
        self.encode = nn.Linear(cells, 48)
        self.decode = nn.Linear(48, cells)

    def forward(self, field):
        return field + self.decode(torch.tanh(self.encode(field)))


def build(cfg):
    torch.manual_seed(1)
    model = DistributedDataParallel(Forecaster(cfg.cells), gradient_as_bucket_view=True)
    return model, torch.optim.AdamW(model.parameters(), lr=cfg.lr)


def train(cfg):
    model, optimizer = build(cfg)
    guard = SpikeGuard(cfg.spike_factor, cfg.warmup)
    for step, (now, after) in enumerate(Reanalysis(cfg, dist.get_rank()), start=1):
        loss = nn.functional.mse_loss(model(now), after)
        value = loss.item()
        if guard.rejects(value):
            log.warning("step %d: loss %.3f looks like a spike, left out", step, value)
            continue
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % cfg.log_every == 0:
            log.info("step %d loss %.3f, %d steps left out", step, value, guard.rejected)
    return model


def main():
    logging.basicConfig(level=logging.INFO)
    dist.init_process_group("gloo")
    train(ForecastConfig())
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
