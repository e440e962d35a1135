# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = []
# outcome = "hang"
# causes_any = ["HD202", "HD109", "HD106"]
# culprits = [0]
# culprits_any = [[1, 2]]
# lines = [70, 74, 75, 79, 80, 81, 82, 83, 95, 99]
# branch = ["self.source is not None", "batch is not None"]
# source = "https://github.com/hpcaitech/ColossalAI/pull/2156"
# ///
"""Scores a data set with torch's pipeline stages; the first stage reads the data and cuts each batch into micro-batches."""
import logging
import math
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

log = logging.getLogger("score")


@dataclass(frozen=True)
class ScoringConfig:
    width: int = 24
    rows: int = 56
    batch: int = 16
    microbatch: int = 4

    @property
    def batches(self) -> int:
        return math.ceil(self.rows / self.batch)


class Block(nn.Module):
    def __init__(self, width: int, layers: int):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))

    def forward(self, hidden):
        for layer in self.layers:
            hidden = torch.relu(layer(hidden)) + hidden
        return hidden


class TableSource:
    """Rows of the table in batches; the last one may be short."""

    def __init__(self, cfg: ScoringConfig):
        self.cfg = cfg
        self.table = torch.randn(cfg.rows, cfg.width, generator=torch.Generator().manual_seed(3))

    def batch(self, number: int) -> torch.Tensor:
        start = number * self.cfg.batch
        return self.table[start:start + self.cfg.batch]


class ScoringStage:
    def __init__(self, cfg: ScoringConfig, rank: int, world: int):
        self.cfg, self.rank, self.world = cfg, rank, world
        self.stage = PipelineStage(Block(cfg.width, 2).eval(), rank, world, torch.device("cpu"))
        self.source = TableSource(cfg) if rank == 0 else None
        self.schedules = {}

    def schedule(self, microbatches: int) -> ScheduleGPipe:
        if microbatches not in self.schedules:
            log.info("new schedule with %d micro-batches", microbatches)
            self.schedules[microbatches] = ScheduleGPipe(self.stage, microbatches)
        return self.schedules[microbatches]

    def count(self, batch) -> int:
        rows = len(batch) if batch is not None else self.cfg.batch
        return rows // self.cfg.microbatch

    @torch.no_grad()
    def score(self, number: int):
        batch = self.source.batch(number) if self.source is not None else None
        schedule = self.schedule(self.count(batch))
        if batch is not None:
            return schedule.eval(batch)
        return schedule.eval()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    logging.basicConfig(level=logging.INFO, format=f"[rank {rank}] %(message)s")
    torch.manual_seed(rank)
    cfg = ScoringConfig()
    stage = ScoringStage(cfg, rank, world)
    total = torch.zeros(1)
    for number in range(cfg.batches):
        scores = stage.score(number)
        if scores is not None:
            total += scores.sum()
        log.info("batch %d passed", number)
    dist.all_reduce(total)
    log.info("total score %.3f", total.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
