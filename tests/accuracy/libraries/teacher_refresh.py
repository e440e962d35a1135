# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "slow"
# outcome_any = ["hang", "slow"]
# causes_any = ["HD508"]
# culprits_any = [[0], [1, 2, 3]]
# lines = [63, 73, 74, 111]
# branch = ["score >= self.best", "path.exists()"]
# source = "https://github.com/Lightning-AI/pytorch-lightning/issues/6700"
# ///
"""Self distillation: after every round the main process exports the student as the next teacher when it became better; the
other processes wait for the file and load it."""
import logging
import math
import os
import pathlib
import tempfile
import time
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("distill")


@dataclass
class DistillConfig:
    inputs: int = 10
    hidden: int = 16
    classes: int = 4
    rounds: int = 6
    steps: int = 15
    batch: int = 16
    temperature: float = 2.0
    lr: float = 0.3
    folder: pathlib.Path = pathlib.Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / "teachers"


def network(cfg):
    return nn.Sequential(nn.Linear(cfg.inputs, cfg.hidden), nn.ReLU(), nn.Linear(cfg.hidden, cfg.classes))


def examples(cfg, n, seed, flipped=False):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, cfg.inputs, generator=g)
    y = x[:, : cfg.classes].argmax(1)
    return x, (y + 1) % cfg.classes if flipped else y


class TeacherStore:
    def __init__(self, cfg):
        self.cfg, self.best = cfg, math.inf
        cfg.folder.mkdir(parents=True, exist_ok=True)

    def path(self, number):
        return self.cfg.folder / f"teacher_{number}.pt"

    def publish(self, number, student, score):
        if score >= self.best:
            log.info("round %d: %.3f is not better than %.3f", number, score, self.best)
            return
        self.best = score
        scratch = self.path(number).with_suffix(".tmp")
        torch.save(student.state_dict(), scratch)
        scratch.rename(self.path(number))

    def receive(self, number, teacher):
        path = self.path(number)
        while not path.exists():
            time.sleep(0.5)
        teacher.load_state_dict(torch.load(path))


class Round:
    def __init__(self, cfg, rank):
        self.cfg, self.rank = cfg, rank
        torch.manual_seed(0)
        self.student, self.teacher = DDP(network(cfg)), network(cfg)
        self.optimizer = torch.optim.SGD(self.student.parameters(), lr=cfg.lr)
        self.store = TeacherStore(cfg)
        self.held_out = examples(cfg, 64, 999)

    def distill(self, number):
        # from round 3 on the new collection, whose label ids are shifted by one
        x, y = examples(self.cfg, self.cfg.batch * self.cfg.steps, 10 * number + self.rank, flipped=number >= 3)
        t = self.cfg.temperature
        for i in range(self.cfg.steps):
            part = slice(i * self.cfg.batch, (i + 1) * self.cfg.batch)
            logits = self.student(x[part])
            with torch.no_grad():
                soft = (self.teacher(x[part]) / t).softmax(-1)
            loss = F.cross_entropy(logits, y[part]) + 0.1 * F.kl_div((logits / t).log_softmax(-1), soft, reduction="batchmean")
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()

    @torch.no_grad()
    def score(self):
        x, y = self.held_out
        return F.cross_entropy(self.student.module(x), y).item()

    def exchange(self, number):
        if self.rank == 0:
            self.store.publish(number, self.student.module, self.score())
            self.teacher.load_state_dict(self.student.module.state_dict())
        else:
            self.store.receive(number, self.teacher)


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    cfg = DistillConfig()
    work = Round(cfg, dist.get_rank())
    for number in range(1, cfg.rounds + 1):
        work.distill(number)
        work.exchange(number)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
