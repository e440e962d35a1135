# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = []
# outcome = "hang"
# causes_any = ["HD202", "HD102"]
# culprits = [1]
# lines = [66, 67, 78, 87, 92, 100, 120, 121]
# branch = ["range(chunks)", "batch[0].chunk(chunks)", "batch is not None"]
# source = "https://github.com/deepspeedai/DeepSpeed/pull/6484"
# ///
"""Pipeline-parallel training with hand-written sends and receives and an evaluation pass after every epoch."""
import logging
import math
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

log = logging.getLogger("pipe")


@dataclass
class PipeConfig:
    width: int = 24
    classes: int = 6
    batch_rows: int = 16
    train_rows: int = 96
    valid_rows: int = 40
    micro_rows: int = 4
    epochs: int = 2


def make_data(cfg, rows, seed, drop_last):
    gen = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, cfg.width, generator=gen)
    y = (x[:, : cfg.classes].argmax(1)).long()
    return DataLoader(TensorDataset(x, y), cfg.batch_rows, drop_last=drop_last)


class Stage(nn.Module):
    def __init__(self, cfg, index, count):
        super().__init__()
        out = cfg.classes if index == count - 1 else cfg.width
        self.net = nn.Sequential(nn.Linear(cfg.width, cfg.width), nn.Tanh(), nn.Linear(cfg.width, out))

    def forward(self, x):
        return self.net(x)


class PipelineEngine:
    """Fill-drain schedule. Only the ends of the pipe read data, the middle works with the nominal batch."""

    def __init__(self, cfg):
        self.cfg = cfg
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.first, self.last = self.rank == 0, self.rank == self.world - 1
        self.micro_rows = cfg.micro_rows
        torch.manual_seed(self.rank)
        self.stage = Stage(cfg, self.rank, self.world)
        self.opt = torch.optim.Adam(self.stage.parameters(), lr=5e-3)

    def plan(self, batch):
        rows = len(batch[0]) if batch is not None else self.cfg.batch_rows
        return max(1, math.ceil(rows / self.micro_rows))

    def stream(self, loader, steps):
        if self.first or self.last:
            yield from loader
        else:
            for _ in range(steps):
                yield None

    def pull(self):
        hidden = torch.empty(self.micro_rows, self.cfg.width)
        dist.recv(hidden, src=self.rank - 1)
        return hidden

    def push(self, hidden):
        dist.send(hidden.contiguous(), dst=self.rank + 1)

    def forward_all(self, batch, chunks):
        inputs, outputs = [], []
        if self.first:
            for piece in batch[0].chunk(chunks):
                inputs.append(piece)
                outputs.append(self.stage(piece))
                self.push(outputs[-1].detach())
        else:
            for _ in range(chunks):
                inputs.append(self.pull().requires_grad_())
                outputs.append(self.stage(inputs[-1]))
                if not self.last:
                    self.push(outputs[-1].detach())
        return inputs, outputs

    def train_batch(self, batch):
        chunks = self.plan(batch)
        inputs, outputs = self.forward_all(batch, chunks)
        if self.last:
            labels = batch[1].chunk(chunks)
            losses = [F.cross_entropy(o, t) / chunks for o, t in zip(outputs, labels)]
        for i in reversed(range(chunks)):
            if self.last:
                losses[i].backward()
            else:
                grad = torch.empty_like(outputs[i])
                dist.recv(grad, src=self.rank + 1)
                outputs[i].backward(grad)
            if not self.first:
                dist.send(inputs[i].grad.contiguous(), dst=self.rank - 1)
        self.opt.step()
        self.opt.zero_grad()
        return sum(l.item() for l in losses) if self.last else 0.0

    @torch.no_grad()
    def eval_batch(self, batch):
        chunks = self.plan(batch)
        _, outputs = self.forward_all(batch, chunks)
        if self.last:
            return float((torch.cat(outputs).argmax(1) == batch[1]).sum())
        return 0.0


class Experiment:
    def __init__(self, cfg):
        self.cfg = cfg
        self.engine = PipelineEngine(cfg)
        self.train_loader = make_data(cfg, cfg.train_rows, seed=1, drop_last=True)
        self.valid_loader = make_data(cfg, cfg.valid_rows, seed=2, drop_last=False)

    def evaluate(self, epoch):
        hits = sum(self.engine.eval_batch(b) for b in self.engine.stream(self.valid_loader, len(self.valid_loader)))
        total = torch.tensor([hits])
        dist.all_reduce(total)
        log.info("epoch %d accuracy %.3f", epoch, total.item() / self.cfg.valid_rows)

    def run(self):
        for epoch in range(self.cfg.epochs):
            loss = 0.0
            for batch in self.engine.stream(self.train_loader, len(self.train_loader)):
                loss += self.engine.train_batch(batch)
            log.info("epoch %d loss %.3f", epoch, loss)
            self.evaluate(epoch)


def main():
    dist.init_process_group("gloo")
    logging.basicConfig(level=logging.INFO, format=f"[{dist.get_rank()}] %(message)s")
    Experiment(PipeConfig()).run()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
