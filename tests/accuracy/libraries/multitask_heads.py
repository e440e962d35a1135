# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "hang"
# causes_any = ["HD111"]
# culprits = [2]
# lines = [69, 75]
# branch = ["task.name in batch", "(self.drive, index) not in self.radar_off"]
# source = "https://github.com/pytorch/pytorch/pull/100773"
# ///
"""Driving scene model with one head per task. The batch holds only the targets that its frames were annotated with; each step
the numbers of all ranks are collected for the log."""
import logging
from dataclasses import dataclass
from typing import Callable

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("scene")


@dataclass(frozen=True)
class Task:
    name: str
    outputs: int
    loss: Callable
    weight: float = 1.0


TASKS = (Task("objects", 5, F.cross_entropy), Task("depth", 1, F.l1_loss, 0.5), Task("lanes", 3, F.mse_loss, 0.7))


@dataclass
class SceneConfig:
    inputs: int = 14
    hidden: int = 20
    steps: int = 40
    batch: int = 6
    drives: int = 8


class SceneNet(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(cfg.inputs, cfg.hidden), nn.ReLU(), nn.Linear(cfg.hidden, cfg.hidden), nn.ReLU())
        self.heads = nn.ModuleDict({t.name: nn.Linear(cfg.hidden, t.outputs) for t in TASKS})

    def forward(self, x):
        h = self.trunk(x)
        return {name: head(h) for name, head in self.heads.items()}


class DriveLog:
    """Sequences recorded by the fleet; radar was off in a few stretches, so they carry no depth."""

    radar_off = {(2, 7), (2, 8), (6, 11)}

    def __init__(self, cfg, rank):
        self.cfg, self.drive = cfg, rank % cfg.drives

    def __iter__(self):
        for index in range(self.cfg.steps):
            g = torch.Generator().manual_seed(1000 * self.drive + index)
            x = torch.randn(self.cfg.batch, self.cfg.inputs, generator=g)
            batch = {"x": x, "objects": x[:, :5].argmax(1), "lanes": x[:, 5:8].tanh()}
            if (self.drive, index) not in self.radar_off:
                batch["depth"] = x[:, 8:9].abs()
            yield batch


def total_loss(outputs, batch):
    parts = {task.name: task.weight * task.loss(outputs[task.name], batch[task.name]) for task in TASKS if task.name in batch}
    return sum(parts.values()), {k: v.item() for k, v in parts.items()}


class Meters:
    def __init__(self):
        self.rows = []

    def update(self, step, parts):
        gathered = [None] * dist.get_world_size()
        dist.all_gather_object(gathered, parts)
        self.rows.append(gathered)
        if dist.get_rank() == 0 and step % 5 == 0:
            log.info("step %d %s", step, {t.name: round(sum(g.get(t.name, 0) for g in gathered), 3) for t in TASKS})


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(6)
    cfg, meters = SceneConfig(), Meters()
    model = DDP(SceneNet(cfg))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for step, batch in enumerate(DriveLog(cfg, dist.get_rank())):
        loss, parts = total_loss(model(batch["x"]), batch)
        optimizer.zero_grad(set_to_none=False)
        loss.backward()
        optimizer.step()
        meters.update(step, parts)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
