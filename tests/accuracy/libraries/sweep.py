# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# outcome = "hang"
# causes_any = ["HD103", "HD101", "HD106", "HD102"]
# culprits = [0]
# lines = [57, 91, 92, 104, 114]
# branch = ["self.reporter.should_prune(epoch)", "except TrialPruned", "TrialPruned", "self.best_at[epoch] * (1 + self.margin) < self.values[-1]"]
# source = "https://github.com/huggingface/transformers/pull/19096"
# ///
"""Hyper-parameter sweep inside one job: every trial is a data parallel training, bad trials are pruned."""
import logging
import math
import random
from dataclasses import dataclass, field
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("sweep")


class TrialPruned(Exception):
    pass


@dataclass
class Space:
    lr: tuple = (1e-4, 0.3)
    width: tuple = (4, 8, 16)

    def sample(self, rng):
        lo, hi = (math.log(v) for v in self.lr)
        return {"lr": math.exp(rng.uniform(lo, hi)), "width": rng.choice(self.width)}


@dataclass
class Reporter:
    """Keeps the intermediate values of the running trial and compares them with the best seen so far."""

    margin: float = 0.25
    best_at: dict = field(default_factory=dict)
    values: list = field(default_factory=list)

    def begin(self):
        self.values = []

    def report(self, value):
        self.values.append(value)

    def should_prune(self, epoch):
        if epoch not in self.best_at:
            return False
        return self.best_at[epoch] * (1 + self.margin) < self.values[-1]

    def finish(self):
        for e, v in enumerate(self.values):
            self.best_at[e] = min(v, self.best_at.get(e, v))


class SilentReporter(Reporter):
    def report(self, value):
        pass

    def should_prune(self, epoch):
        return False


class Objective:
    def __init__(self, rank, reporter, epochs=6):
        self.reporter, self.epochs = reporter, epochs
        g = torch.Generator().manual_seed(60 + rank)
        self.x = torch.randn(64, 5, generator=g)
        self.y = self.x.pow(2).sum(1, keepdim=True) / 5

    def __call__(self, params):
        torch.manual_seed(0)
        net = DDP(nn.Sequential(nn.Linear(5, params["width"]), nn.Tanh(), nn.Linear(params["width"], 1)))
        opt = torch.optim.SGD(net.parameters(), lr=params["lr"])
        self.reporter.begin()
        for epoch in range(self.epochs):
            for xb, yb in zip(self.x.split(16), self.y.split(16)):
                opt.zero_grad()
                loss = nn.functional.mse_loss(net(xb), yb)
                loss.backward()
                opt.step()
            self.reporter.report(loss.item())
            if self.reporter.should_prune(epoch):
                raise TrialPruned(f"at epoch {epoch}: {loss.item():.4f}")
        self.reporter.finish()
        return loss.item()


class Study:
    def __init__(self, rank, space, seed=12):
        self.rank, self.space = rank, space
        self.rng = random.Random(seed)
        self.trials = []

    def ask(self):
        dist.barrier()
        box = [self.space.sample(self.rng) if self.rank == 0 else None]
        dist.broadcast_object_list(box, src=0)
        return box[0]

    def optimize(self, objective, n_trials):
        for number in range(n_trials):
            params = self.ask()
            try:
                value = objective(params)
            except TrialPruned as why:
                log.info("trial %d pruned %s", number, why)
                value = None
            self.trials.append((value, params))
            if self.rank == 0:
                log.info("trial %d %s -> %s", number, params, value)


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(hours=1))
    rank = dist.get_rank()
    reporter = Reporter() if rank == 0 else SilentReporter()
    study = Study(rank, Space())
    study.optimize(Objective(rank, reporter), n_trials=12)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
