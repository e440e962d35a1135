# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = []
# outcome = "hang"
# causes_any = ["HD202", "HD102", "HD106", "HD101"]
# culprits_any = [[0], [1], [1, 2]]
# lines = [46, 63, 66]
# branch = ["mb in x.chunk(self.n_micro)", "x.chunk(self.n_micro)", "_ in range(self.n_micro)", "range(self.n_micro)"]
# source = "https://github.com/ooples/AiDotNet.Tensors/pull/266"
# ///
"""Three stage pipeline with micro batches: training on full batches, evaluation on everything that is left."""
import logging
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn

log = logging.getLogger("gpipe")


@dataclass
class PipeConfig:
    n_micro: int = 6
    batch: int = 12
    rows: int = 60
    eval_rows: int = 33
    dim: int = 8
    epochs: int = 3


class Wire:
    """Sends activations with a small header, since micro batches may be of any length."""

    def __init__(self, rank, world):
        self.prev, self.next = rank - 1, rank + 1
        self.first, self.last = rank == 0, rank == world - 1

    def send(self, t, to):
        dist.send(torch.tensor(t.shape), to)
        dist.send(t.detach().contiguous(), to)

    def recv(self, source):
        shape = torch.zeros(2, dtype=torch.long)
        dist.recv(shape, source)
        buf = torch.empty(*shape.tolist())
        dist.recv(buf, source)
        return buf


class Stage(nn.Module):
    def __init__(self, cfg, wire):
        super().__init__()
        self.n_micro, self.wire = cfg.n_micro, wire
        self.body = nn.Sequential(nn.Linear(cfg.dim, cfg.dim), nn.Tanh())
        self.head = nn.Linear(cfg.dim, 1) if wire.last else None
        self.opt = torch.optim.SGD(self.parameters(), lr=0.05)

    def feed(self, x):
        """Inputs of this stage: chunks of the batch on the first stage, activations on the others."""
        if self.wire.first:
            for mb in x.chunk(self.n_micro):
                yield mb
        else:
            for _ in range(self.n_micro):
                yield self.wire.recv(self.wire.prev).requires_grad_()

    def forward_all(self, x, y):
        saved, losses, at = [], [], 0
        for inp in self.feed(x):
            out = self.body(inp)
            if self.wire.last:
                target = y[at:at + len(inp)]
                at += len(inp)
                out = nn.functional.mse_loss(self.head(out).squeeze(-1), target)
                losses.append(out)
            else:
                self.wire.send(out, self.wire.next)
            saved.append((inp, out))
        return saved, losses

    def train_batch(self, x, y):
        self.opt.zero_grad()
        saved, losses = self.forward_all(x, y)
        for inp, out in saved:
            if self.wire.last:
                out.backward()
            else:
                out.backward(self.wire.recv(self.wire.next))
            if not self.wire.first:
                self.wire.send(inp.grad, self.wire.prev)
        self.opt.step()
        return torch.stack(losses).mean().item() if losses else 0.0

    @torch.no_grad()
    def eval_batch(self, x, y):
        _, losses = self.forward_all(x, y)
        return torch.stack(losses).mean().item() if losses else 0.0


def table(n, dim, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, dim, generator=g)
    return x, x[:, 0] - 0.5 * x[:, 1]


def run(cfg, rank, world):
    torch.manual_seed(rank)
    stage = Stage(cfg, Wire(rank, world))
    train, held_out = table(cfg.rows, cfg.dim, 0), table(cfg.eval_rows, cfg.dim, 1)
    for epoch in range(cfg.epochs):
        for x, y in zip(train[0].split(cfg.batch), train[1].split(cfg.batch)):
            loss = stage.train_batch(x, y)
        scores = [stage.eval_batch(x, y) for x, y in zip(held_out[0].split(cfg.batch), held_out[1].split(cfg.batch))]
        shared = [{"train": loss, "eval": sum(scores) / len(scores)}]
        dist.broadcast_object_list(shared, src=world - 1)
        log.info("epoch %d %s", epoch, shared[0])


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(hours=1))
    run(PipeConfig(), dist.get_rank(), dist.get_world_size())
    dist.destroy_process_group()
