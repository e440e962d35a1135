# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = []
# outcome = "hang"
# causes_any = ["HD202", "HD102"]
# culprits = [2]
# lines = [98, 92, 104, 51]
# branch = ["self.source.batches()"]
# source = "https://github.com/pytorch/torchtitan/issues/775"
# ///
"""Pipeline-parallel training with torch.distributed.pipelining (1F1B): the first stage reads the inputs, the last one the annotations."""
import logging
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

log = logging.getLogger("pipe")


@dataclass(frozen=True)
class PipeConfig:
    dim: int = 16
    batch: int = 12
    microbatches: int = 6
    rows: int = 132
    epochs: int = 2

    @property
    def micro(self):
        return self.batch // self.microbatches


class Source:
    """Rows of one memory-mapped file; the stages in the middle follow the inputs."""
    NAMES = {"first": "inputs", "middle": "inputs", "last": "annotations"}

    def __init__(self, root, role, cfg):
        self.path, self.cfg = root / f"{self.NAMES[role]}.npy", cfg

    def rows(self):
        return np.load(self.path, mmap_mode="r")

    def batches(self):
        return len(self.rows()) // self.cfg.batch

    def batch(self, step):
        lo = step * self.cfg.batch
        return torch.from_numpy(np.array(self.rows()[lo:lo + self.cfg.batch]))


def export(root, cfg):
    """Writes what the labelling tool exports: rejected rows at the end of the campaign have no annotation."""
    root.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(cfg.rows, cfg.dim)).astype("float32")
    accepted = cfg.rows - int((np.abs(x[-20:]).mean(1) > 0.6).sum())
    np.save(root / "inputs.npy", x)
    np.save(root / "annotations.npy", np.tanh(x[:accepted]))


class StageModel(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(dim, dim), nn.Tanh(), nn.Linear(dim, dim))

    def forward(self, x):
        return x + self.net(x)


class PipelineTrainer:
    def __init__(self, cfg, source, rank, world):
        self.cfg, self.source, self.rank, self.last = cfg, source, rank, world - 1
        torch.manual_seed(rank)
        module = StageModel(cfg.dim)
        example = torch.zeros(cfg.micro, cfg.dim, requires_grad=True)
        stage = PipelineStage(module, rank, world, torch.device("cpu"), input_args=(example,), output_args=(example,))
        self.schedule = Schedule1F1B(stage, cfg.microbatches, loss_fn=nn.functional.mse_loss)
        self.opt = torch.optim.SGD(module.parameters(), lr=0.05)

    def run_step(self, step):
        losses = []
        self.opt.zero_grad()
        args = (self.source.batch(step),) if self.rank == 0 else ()
        target = self.source.batch(step) if self.rank == self.last else None
        self.schedule.step(*args, target=target, losses=losses if self.rank == self.last else None)
        self.opt.step()
        return float(torch.stack(losses).mean()) if losses else None

    def epoch(self, number):
        loss = None
        for step in range(self.source.batches()):
            loss = self.run_step(step)
        self.report({"stage": self.rank, "epoch": number, "loss": loss})

    def report(self, report):
        table = [None] * dist.get_world_size()
        dist.all_gather_object(table, report)
        log.info("epoch %d loss %.4f", report["epoch"], table[-1]["loss"])


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    logging.basicConfig(level=logging.INFO, format=f"[{rank}] %(message)s")
    cfg = PipeConfig()
    root = Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / "campaign"
    if rank == 0:
        export(root, cfg)
    dist.barrier()
    role = "first" if rank == 0 else "last" if rank == world - 1 else "middle"
    trainer = PipelineTrainer(cfg, Source(root, role, cfg), rank, world)
    for number in range(cfg.epochs):
        trainer.epoch(number)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
