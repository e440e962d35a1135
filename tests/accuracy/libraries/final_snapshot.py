# /// hangdoc
# launch = "python"
# requires = ["torchsnapshot"]
# outcome = "hang"
# causes_any = ["HD101", "HD109", "HD106"]
# culprits = [1]
# culprits_any = [[0, 2, 3]]
# lines = [75, 76, 85, 88, 135, 144, 145]
# branch = ["target.exists()", ".exists()"]
# source = "https://github.com/meta-pytorch/tnt/pull/632"
# ///
"""Trains a forecaster on several regions and takes a torchsnapshot at the end of training, unless the last epoch's callback has taken it already."""
import logging
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torchsnapshot import Snapshot, StateDict

log = logging.getLogger("forecast")
WORLD = 4


@dataclass
class Plan:
    epochs: int = 3
    steps: int = 20
    every: int = 50
    lr: float = 0.02


class Progress:
    def __init__(self):
        self.epoch = 0
        self.steps = 0

    def state_dict(self):
        return {"epoch": self.epoch, "steps": self.steps}

    def load_state_dict(self, state):
        self.epoch, self.steps = state["epoch"], state["steps"]


class RegionSeries:
    """Hourly series of one region. The hold-out part covers whatever years the region has measured."""

    HOLDOUT = (900, 20, 1200, 700)

    def __init__(self, rank):
        gen = torch.Generator().manual_seed(rank)
        self.train = torch.randn(400, 24, generator=gen).cumsum(1)
        self.holdout = torch.randn(self.HOLDOUT[rank] * 25, 24, generator=gen).cumsum(1)

    def batch(self, step):
        rows = self.train[step * 16 % 384:][:16]
        return rows[:, :-1], rows[:, 1:]


class SnapshotSaver:
    """Callback that takes snapshots every so many steps and a last one when training ends."""

    def __init__(self, root, every, app_state):
        self.root, self.every, self.app_state = Path(root), every, app_state
        self.taken = []

    def target(self, progress):
        return self.root / f"epoch_{progress.epoch}_step_{progress.steps}"

    def take(self, path):
        path.mkdir(parents=True, exist_ok=True)
        Snapshot.take(str(path), self.app_state, replicated=["model/**"])
        self.taken.append(path.name)

    def on_step_end(self, progress):
        if progress.steps % self.every == 0:
            self.take(self.target(progress))

    def on_train_end(self, progress):
        target = self.target(progress)
        if target.exists():
            log.info("%s is there, no last snapshot needed", target.name)
            return
        self.take(target)


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRU(1, 12, batch_first=True)
        self.head = nn.Linear(12, 1)

    def forward(self, x):
        hidden, _ = self.cell(x.unsqueeze(-1))
        return self.head(hidden).squeeze(-1)


class Task:
    def __init__(self, plan, root, rank):
        torch.manual_seed(0)
        self.plan, self.series = plan, RegionSeries(rank)
        self.model, self.progress = Forecaster(), Progress()
        app_state = {"model": self.model, "progress": self.progress, "plan": StateDict(lr=plan.lr)}
        self.saver = SnapshotSaver(root, plan.every, app_state)

    def step(self, number):
        x, y = self.series.batch(number)
        loss = nn.functional.mse_loss(self.model(x), y)
        grads = torch.autograd.grad(loss, list(self.model.parameters()))
        flat = torch.cat([g.flatten() for g in grads])
        dist.all_reduce(flat)
        with torch.no_grad():
            for p, g in zip(self.model.parameters(), flat.split([g.numel() for g in grads])):
                p -= self.plan.lr * g.view_as(p) / WORLD
        self.progress.steps += 1
        self.saver.on_step_end(self.progress)

    @torch.no_grad()
    def holdout_error(self):
        total = 0.0
        for window in self.series.holdout.split(20):
            total += (self.model(window[:, :-1]) - window[:, 1:]).abs().mean().item()
        return total / len(self.series.holdout.split(20))

    def run(self):
        for epoch in range(self.plan.epochs):
            for number in range(self.plan.steps):
                self.step(number)
            self.progress.epoch += 1
        log.info("hold-out error %.3f", self.holdout_error())
        self.saver.on_train_end(self.progress)


def worker(rank, root):
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(WORLD))
    dist.init_process_group("gloo", init_method=f"file://{root}/rendezvous", rank=rank, world_size=WORLD)
    logging.basicConfig(level=logging.WARNING, format=f"[{rank}] %(message)s")
    log.setLevel(logging.INFO)
    task = Task(Plan(), Path(root) / "snapshots", rank)
    task.run()
    dist.barrier()
    log.info("snapshots %s", task.saver.taken)
    dist.destroy_process_group()


def main():
    root = tempfile.mkdtemp(prefix="forecast-", dir=os.environ.get("TMPDIR", tempfile.gettempdir()))
    mp.start_processes(worker, args=(root,), nprocs=WORLD, start_method="fork")


if __name__ == "__main__":
    main()
