# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = []
# outcome = "hang"
# causes_any = ["HD102", "HD202", "HD106", "HD101"]
# culprits = [2]
# lines = [58, 59, 60, 95, 97, 99, 111, 112, 115]
# branch = ["self.with_labels and not record.usable", "not record.usable", "rows in enumerate(reader, 1)", "len(rows) == self.cfg.batch_rows"]
# source = "https://github.com/pytorch/pytorch/issues/126600"
# ///
import logging
import os
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

logging.basicConfig(level=logging.INFO, format="%(asctime)s [r" + os.environ["RANK"] + "] %(message)s")
log = logging.getLogger("pipe")
IGNORE = -100


@dataclass
class Record:
    features: torch.Tensor
    label: int

    @property
    def usable(self):
        return self.label != IGNORE


@dataclass
class PipeConfig:
    batch_rows: int = 16
    micro_rows: int = 4
    hidden: int = 24
    classes: int = 6
    steps: int = 9


class RecordReader:
    """Every stage reads the same file; the stage with the loss also looks at the labels."""

    def __init__(self, cfg, with_labels):
        self.cfg, self.with_labels = cfg, with_labels
        gen = torch.Generator().manual_seed(77)
        count = cfg.batch_rows * cfg.steps
        feats = torch.randn(count, cfg.hidden, generator=gen)
        labels = torch.randint(0, cfg.classes, (count,), generator=gen).tolist()
        labels[-cfg.micro_rows:] = [IGNORE] * cfg.micro_rows
        self.records = [Record(f, y) for f, y in zip(feats, labels)]

    def __iter__(self):
        rows = []
        for record in self.records:
            if self.with_labels and not record.usable:
                continue
            rows.append(record)
            if len(rows) == self.cfg.batch_rows:
                yield rows
                rows = []


class StageNet(nn.Module):
    def __init__(self, cfg, index, total):
        super().__init__()
        last = index == total - 1
        self.body = nn.Sequential(nn.Linear(cfg.hidden, cfg.hidden), nn.Tanh())
        self.out = nn.Linear(cfg.hidden, cfg.classes) if last else nn.Identity()

    def forward(self, x):
        return self.out(self.body(x))


class PipelineRunner:
    def __init__(self, cfg, rank, world):
        self.cfg, self.rank, self.world = cfg, rank, world
        torch.manual_seed(rank)
        self.net = StageNet(cfg, rank, world)
        self.stage = PipelineStage(self.net, rank, world, torch.device("cpu"))
        self.opt = torch.optim.SGD(self.net.parameters(), lr=0.05)
        chunks = cfg.batch_rows // cfg.micro_rows
        self.schedule = ScheduleGPipe(self.stage, chunks, loss_fn=nn.functional.cross_entropy)

    @property
    def is_last(self):
        return self.rank == self.world - 1

    def step(self, rows):
        schedule, losses = self.schedule, []
        if self.rank == 0:
            schedule.step(torch.stack([r.features for r in rows]))
        elif self.is_last:
            schedule.step(target=torch.tensor([r.label for r in rows]), losses=losses)
        else:
            schedule.step()
        self.opt.step()
        self.opt.zero_grad()
        return sum(x.item() for x in losses) / max(1, len(losses))


def main():
    dist.init_process_group("gloo")
    cfg = PipeConfig()
    rank, world = dist.get_rank(), dist.get_world_size()
    runner = PipelineRunner(cfg, rank, world)
    reader = RecordReader(cfg, with_labels=runner.is_last)
    for number, rows in enumerate(reader, 1):
        loss = runner.step(rows)
        if runner.is_last:
            log.info("batch %d (%d rows) loss %.4f", number, len(rows), loss)
    dist.barrier()
    log.info("epoch done")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
