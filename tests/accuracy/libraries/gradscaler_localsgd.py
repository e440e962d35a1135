# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# outcome = "hang"
# causes_any = ["HD101", "HD106"]
# culprits = [2]
# lines = [71, 73, 92, 105, 123]
# branch = ["self.global_step % self.sync_every", "found_inf"]
# source = "https://github.com/dylanyunlon/Neuron_SP/issues/2"
# ///
"""Local-SGD regression training with a gradient scaler: replicas step on their own and average their weights every few optimizer steps."""
import logging
import os
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn

log = logging.getLogger("localsgd")


@dataclass
class Config:
    features: int = 24
    hidden: int = 48
    batch: int = 16
    loops: int = 200
    sync_every: int = 8
    report_every: int = 10
    lr: float = 1e-3
    init_scale: float = 2.0 ** 12


class SensorShard:
    """One replica's part of the sensor recordings; readings are raw ADC counts of the station."""

    def __init__(self, cfg, rank):
        gen = torch.Generator().manual_seed(100 + rank)
        self.x = torch.randn(512, cfg.features, generator=gen)
        self.y = self.x[:, :4].sum(dim=1, keepdim=True) + 0.1 * torch.randn(512, 1, generator=gen)
        for station, row in ((2, 92), (2, 93), (6, 40)):
            if station == rank:
                self.y[row] = 3.1e36
        self.batch = cfg.batch

    def batches(self):
        while True:
            for lo in range(0, len(self.x), self.batch):
                yield self.x[lo:lo + self.batch], self.y[lo:lo + self.batch]


class LocalSGD:
    """AdamW whose replicas meet only at every `sync_every`-th step."""

    def __init__(self, params, lr, sync_every):
        self.params = [p for p in params if p.requires_grad]
        self.inner = torch.optim.AdamW(self.params, lr=lr)
        self.param_groups = self.inner.param_groups
        self.sync_every = sync_every
        self.global_step = 0

    def zero_grad(self):
        self.inner.zero_grad(set_to_none=True)

    def step(self):
        self.inner.step()
        self.global_step += 1

    def sync_if_needed(self):
        if self.global_step and self.global_step % self.sync_every == 0:
            for p in self.params:
                dist.all_reduce(p.data)
                p.data /= dist.get_world_size()


class Scaler:
    """Dynamic loss scale as in mixed precision; a step with overflowed gradients is left out."""

    def __init__(self, scale):
        self.scale, self.clean = scale, 0

    def unscale(self, params):
        overflow = False
        for p in params:
            p.grad /= self.scale
            overflow |= not bool(torch.isfinite(p.grad).all())
        return overflow

    def step(self, optimizer):
        found_inf = self.unscale(optimizer.params)
        if found_inf:
            self.scale /= 2
            self.clean = 0
            log.warning("overflow, scale now %g", self.scale)
            return
        optimizer.step()
        self.clean += 1
        if self.clean % 50 == 0:
            self.scale *= 2


def report(loop, running, rank):
    rows = [None] * dist.get_world_size()
    dist.all_gather_object(rows, {"rank": rank, "loss": sum(running) / max(len(running), 1)})
    if rank == 0:
        log.info("loop %d %s", loop, " ".join(f"{r['loss']:.3f}" for r in rows))


def train(cfg, rank):
    torch.manual_seed(7)
    model = nn.Sequential(nn.Linear(cfg.features, cfg.hidden), nn.ReLU(), nn.Linear(cfg.hidden, 1))
    optimizer = LocalSGD(model.parameters(), cfg.lr, cfg.sync_every)
    scaler = Scaler(cfg.init_scale)
    feed = SensorShard(cfg, rank).batches()
    running = []
    for loop in range(1, cfg.loops + 1):
        x, y = next(feed)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        (loss * scaler.scale).backward()
        scaler.step(optimizer)
        optimizer.sync_if_needed()
        running.append(min(loss.item(), 1e6))
        if loop % cfg.report_every == 0:
            report(loop, running, rank)
            running.clear()
    return model


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    logging.basicConfig(level=logging.INFO, format=f"[{rank}] %(message)s")
    train(Config(), rank)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
