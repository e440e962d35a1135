# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# outcome = "hang"
# causes_any = ["HD109", "HD101"]
# culprits = [2]
# lines = [73, 72, 81]
# branch = ["self.scaler.get_scale()"]
# source = "https://github.com/pytorch/pytorch/pull/74894"
# ///
"""Local SGD with mixed precision: every rank trains on its own sensor and the parameters are averaged every few optimizer steps."""
import logging
import statistics
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.distributed.algorithms.model_averaging.averagers as averagers
from torch import nn

log = logging.getLogger("localsgd")


@dataclass
class Plan:
    steps: int = 46
    period: int = 4
    batch: int = 16
    lr: float = 1e-2
    half_max: float = 65504.0


class SensorStream:
    """Vibration windows in m/s^2; two of the sites still have first-generation probes that ring after a restart."""

    def __init__(self, plan, site, generation):
        self.plan, self.generation = plan, generation
        self.gen = torch.Generator().manual_seed(site)

    def windows(self):
        for step in range(self.plan.steps):
            x = torch.randn(self.plan.batch, 32, generator=self.gen)
            y = x[:, ::8].sum(1, keepdim=True)
            if self.generation == 1 and step in (5, 6):
                x = x * 3e3
            yield step, x, y


class LocalTrainer:
    def __init__(self, plan):
        torch.manual_seed(2)
        self.plan = plan
        self.model = nn.Sequential(nn.Linear(32, 24), nn.ReLU(), nn.Linear(24, 1))
        self.opt = torch.optim.SGD(self.model.parameters(), lr=plan.lr)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0 ** 8, growth_interval=10_000)
        self.averager = averagers.PeriodicModelAverager(period=plan.period, warmup_steps=0)
        self.history = []

    def to_half_range(self):
        """Gradients travel as fp16 in the fused optimizer, so clamp to infinity where fp16 would."""
        for p in self.model.parameters():
            p.grad.masked_fill_(p.grad.abs() > self.plan.half_max, float("inf"))

    def step(self, x, y):
        loss = nn.functional.mse_loss(self.model(x), y)
        self.opt.zero_grad()
        self.scaler.scale(loss).backward()
        self.to_half_range()
        before = self.scaler.get_scale()
        self.scaler.step(self.opt)
        self.scaler.update()
        if self.scaler.get_scale() >= before:
            self.averager.average_parameters(self.model.parameters())
            self.history.append(loss.item())
        return loss.item()


def summarize(trainer):
    loss = statistics.fmean(trainer.history[-8:])
    losses = [None] * dist.get_world_size()
    dist.all_gather_object(losses, loss)
    log.info("mean loss %.4f, all sites %s", loss, [round(v, 3) for v in losses])


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    logging.basicConfig(level=logging.INFO, format=f"[{rank}] %(message)s")
    plan = Plan()
    probes = {"harbour": 2, "tunnel": 2, "bridge": 1, "dam": 2}
    site = list(probes)[rank]
    trainer = LocalTrainer(plan)
    for step, x, y in SensorStream(plan, rank, probes[site]).windows():
        loss = trainer.step(x, y)
        if step % 12 == 0:
            log.info("%s step %d loss %.4f scale %.0f", site, step, loss, trainer.scaler.get_scale())
    summarize(trainer)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
