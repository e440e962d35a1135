# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "hang"
# causes_any = ["HD109", "HD101"]
# culprits = [3]
# lines = [61, 65, 88, 119, 120]
# branch = ["self.stage < self.stages and self.plateaued()", "self.plateaued()", "self.window[0] - self.window[-1] < self.min_gain", "schedule.advance(loss)"]
# source = "https://github.com/pytorch/pytorch/issues/22834"
# ///
"""Transfer learning with progressive unfreezing: when the loss stops falling one more block is trained, for which the model is
wrapped anew so that DDP knows the new parameters."""
import logging
from collections import deque
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("transfer")


@dataclass
class TransferConfig:
    inputs: int = 12
    hidden: int = 16
    blocks: int = 3
    classes: int = 4
    batch: int = 8
    steps: int = 300
    window: int = 20
    min_gain: float = 0.02
    lr: float = 0.02


class Backbone(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.stem = nn.Linear(c.inputs, c.hidden)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(c.hidden, c.hidden), nn.ReLU()) for _ in range(c.blocks))
        self.head = nn.Linear(c.hidden, c.classes)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)


class UnfreezeSchedule:
    """Ask after every step whether the next block is due."""

    def __init__(self, c):
        self.stage, self.stages, self.min_gain = 0, c.blocks, c.min_gain
        self.window = deque(maxlen=c.window)

    def plateaued(self):
        full = len(self.window) == self.window.maxlen
        return full and self.window[0] - self.window[-1] < self.min_gain

    def advance(self, value):
        self.window.append(value if not self.window else 0.9 * self.window[-1] + 0.1 * value)
        due = self.stage < self.stages and self.plateaued()
        if due:
            self.stage += 1
            self.window.clear()
        return due


def set_trainable(model, stage):
    model.requires_grad_(False)
    model.head.requires_grad_(True)
    for block in list(model.blocks)[len(model.blocks) - stage:]:
        block.requires_grad_(True)


class Finetuner:
    def __init__(self, c):
        self.c = c
        torch.manual_seed(0)
        self.net = Backbone(c)
        self.wrap(0)

    def wrap(self, stage):
        set_trainable(self.net, stage)
        self.model = DDP(self.net)
        self.optimizer = torch.optim.Adam([p for p in self.net.parameters() if p.requires_grad], lr=self.c.lr)

    def step(self, x, y):
        loss = F.cross_entropy(self.model(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


def hospital(c, site):
    """Labels of the last site come from a student and are mostly guesses."""
    g = torch.Generator().manual_seed(site)
    while True:
        x = torch.randn(c.batch, c.inputs, generator=g)
        y = x[:, : c.classes].argmax(1)
        if site == 3:
            y = torch.randint(0, c.classes, y.shape, generator=g)
        yield 2 * x, y


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    c = TransferConfig()
    tuner, schedule = Finetuner(c), UnfreezeSchedule(c)
    data = hospital(c, dist.get_rank())
    for step in range(c.steps):
        loss = tuner.step(*next(data))
        if schedule.advance(loss):
            tuner.wrap(schedule.stage)
            log.info("[%d] step %d: training %d blocks", dist.get_rank(), step, schedule.stage)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
