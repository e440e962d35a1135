# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = []
# outcome = "hang"
# causes_any = ["HD202", "HD102"]
# culprits = [1]
# lines = [95, 96, 105]
# branch = ["batch is not None", "self.data is None", "n_microbatches"]
# source = "https://github.com/NVIDIA/apex/pull/1500"
# ///
"""Three-stage pipeline (torch.distributed.pipelining): trains on full batches, then scores a validation set."""
import logging
import math
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

log = logging.getLogger("pipe")


@dataclass
class PipeConfig:
    batch_size: int = 16
    micro_batch: int = 4
    dim: int = 24
    train_steps: int = 8
    valid_rows: int = 44
    lr: float = 0.05


def build_part(cfg, index, count):
    torch.manual_seed(index)
    if index == count - 1:
        return nn.Sequential(nn.Linear(cfg.dim, cfg.dim), nn.ReLU(), nn.Linear(cfg.dim, 3))
    return nn.Sequential(nn.Linear(cfg.dim, cfg.dim), nn.ReLU())


class Feed:
    """Only the ends of the pipe open the data: inputs at the first stage, labels at the last."""

    def __init__(self, cfg, kind, seed):
        g = torch.Generator().manual_seed(seed)
        self.x = torch.randn(cfg.valid_rows, cfg.dim, generator=g)
        self.y = (self.x[:, :3]).argmax(1)
        self.data = {"inputs": self.x, "labels": self.y, "none": None}[kind]
        self.count = math.ceil(cfg.valid_rows / cfg.batch_size)
        self.batch_size = cfg.batch_size

    def __iter__(self):
        for i in range(self.count):
            yield None if self.data is None else self.data[i * self.batch_size:(i + 1) * self.batch_size]


class Pipeline:
    def __init__(self, cfg, rank, world):
        self.cfg, self.rank, self.world = cfg, rank, world
        self.first, self.last = rank == 0, rank == world - 1
        self.part = build_part(cfg, rank, world)
        self.opt = torch.optim.SGD(self.part.parameters(), lr=cfg.lr)
        self.loss_fn = nn.CrossEntropyLoss()

    def schedule(self, chunks, grad):
        cfg = self.cfg
        shape = torch.empty(cfg.micro_batch, cfg.dim, device="meta", requires_grad=grad and not self.first)
        out = torch.empty(cfg.micro_batch, 3 if self.last else cfg.dim, device="meta", requires_grad=grad)
        stage = PipelineStage(self.part, self.rank, self.world, torch.device("cpu"), input_args=(shape,), output_args=(out,))
        return ScheduleGPipe(stage, chunks, loss_fn=self.loss_fn if grad else None)

    def train(self):
        cfg = self.cfg
        schedule = self.schedule(cfg.batch_size // cfg.micro_batch, grad=True)
        g = torch.Generator().manual_seed(5)
        for step in range(cfg.train_steps):
            x = torch.randn(cfg.batch_size, cfg.dim, generator=g)
            y = x[:, :3].argmax(1)
            self.opt.zero_grad()
            losses = []
            if self.first:
                schedule.step(x)
            elif self.last:
                schedule.step(target=y, losses=losses)
                log.info("step %d loss %.4f", step, torch.stack(losses).mean())
            else:
                schedule.step()
            self.opt.step()

    @torch.no_grad()
    def validate(self):
        cfg, hits, seen = self.cfg, 0, 0
        feed = Feed(cfg, "inputs" if self.first else "labels" if self.last else "none", seed=9)
        for batch in feed:
            rows = len(batch) if batch is not None else cfg.batch_size
            chunks = math.ceil(rows / cfg.micro_batch)
            schedule = self.schedule(chunks, grad=False)
            if self.first:
                schedule.step(batch)
            elif self.last:
                scores = schedule.step()
                hits += (scores.argmax(1) == batch).sum().item()
                seen += rows
            else:
                schedule.step()  # interior
        if self.last:
            log.info("accuracy %.3f of %d rows", hits / max(seen, 1), seen)
        dist.barrier()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    logging.basicConfig(level=logging.INFO, format=f"[stage {rank}] %(message)s")
    pipe = Pipeline(PipeConfig(), rank, world)
    pipe.train()
    pipe.validate()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
