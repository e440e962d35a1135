# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = []
# outcome = "hang"
# causes_any = ["HD202", "HD101", "HD106"]
# culprits_any = [[2], [0, 1], [1]]
# lines = [132, 109, 127]
# branch = ["self.writer is not None", "not stage.last"]
# source = "https://github.com/NVIDIA-NeMo/Megatron-Bridge/pull/6025"
# ///
"""Pipeline-parallel training of a small regressor with an evaluation every few steps."""
import json
import logging
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

log = logging.getLogger("pipe")


@dataclass
class Config:
    steps: int = 40
    eval_every: int = 20
    eval_batches: int = 4
    microbatches: int = 3
    rows: int = 8
    width: int = 10


class Stage:
    def __init__(self, cfg):
        self.cfg = cfg
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.first, self.last = self.rank == 0, self.rank == self.world - 1
        out = 1 if self.last else cfg.width
        self.net = nn.Sequential(nn.Linear(cfg.width, out)) if self.last else nn.Sequential(
            nn.Linear(cfg.width, out), nn.Tanh())
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.05)

    def receive(self, peer, grad=False):
        buffer = torch.empty(self.cfg.rows, self.cfg.width)
        dist.recv(buffer, peer)
        return buffer if grad else buffer.requires_grad_()


class Schedule:
    """All forward passes, then all backward passes."""

    def __init__(self, stage, data):
        self.stage = stage
        self.data = data

    def forward(self, collect=None):
        st = self.stage
        x, y = self.data.next()
        inp = x if st.first else st.receive(st.rank - 1)
        out = st.net(inp)
        if st.last:
            loss = nn.functional.mse_loss(out, y)
            if collect is not None:
                collect.append(out.detach().flatten().tolist())
            return inp, loss
        dist.send(out.detach(), st.rank + 1)
        return inp, out

    def backward(self, inp, out):
        st = self.stage
        out.backward(None if st.last else st.receive(st.rank + 1, grad=True))
        if not st.first:
            dist.send(inp.grad, st.rank - 1)

    def step(self):
        passes = [self.forward() for _ in range(self.stage.cfg.microbatches)]
        for inp, out in passes:
            self.backward(inp, out)
        self.stage.optimizer.step()
        self.stage.optimizer.zero_grad()
        return passes[-1][1]


class Stream:
    """The same rows on every stage, so that the last one has the targets."""

    def __init__(self, cfg, seed):
        self.cfg = cfg
        self.g = torch.Generator().manual_seed(seed)

    def next(self):
        x = torch.randn(self.cfg.rows, self.cfg.width, generator=self.g)
        return x, x.mean(-1, keepdim=True)


class Writer:
    def __init__(self, folder):
        self.path = Path(folder) / "predictions.jsonl"

    def add(self, step, rows):
        with open(self.path, "a") as out:
            out.write(json.dumps({"step": step, "rows": rows}) + "\n")


def build_writer(stage):
    if not stage.last:
        return None
    return Writer(tempfile.mkdtemp(prefix=f"pipe-{os.environ['MASTER_PORT']}-"))


class Evaluation:
    def __init__(self, stage, cfg):
        self.cfg = cfg
        self.schedule = Schedule(stage, Stream(cfg, seed=99))
        self.writer = build_writer(stage)

    @torch.no_grad()
    def losses(self):
        return [self.schedule.forward()[1] for _ in range(self.cfg.eval_batches)]

    @torch.no_grad()
    def predictions(self):
        rows = []
        self.schedule.forward(collect=rows)
        return rows

    def run(self, step):
        losses = self.losses()
        if self.writer is not None:
            self.writer.add(step, self.predictions())
            log.info("step %d evaluation %.4f", step, float(torch.stack(losses).mean()))


def main():
    logging.basicConfig(level=logging.INFO)
    dist.init_process_group("gloo")
    cfg = Config()
    torch.manual_seed(dist.get_rank())
    stage = Stage(cfg)
    training = Schedule(stage, Stream(cfg, seed=1))
    evaluation = Evaluation(stage, cfg)
    for step in range(1, cfg.steps + 1):
        training.step()
        if step % cfg.eval_every == 0:
            evaluation.run(step)
            dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
