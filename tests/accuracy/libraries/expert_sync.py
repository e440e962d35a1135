# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 6"
# outcome = "hang"
# causes_any = ["HD107"]
# culprits = [4]
# lines = [42, 80, 81, 85, 86]
# branch = ["expert.pending > dense.pending"]
# source = "https://github.com/pytorch/pytorch/issues/130102"
# ///
"""Gradient reduction over two groups (all ranks for the dense part, two expert groups of three). The reducer flushes the fuller
bucket first; on rank 4 a skewed batch makes the expert bucket the fuller one, so it takes the groups in the opposite order."""
import logging
from dataclasses import dataclass, field
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn

log = logging.getLogger("moe")


@dataclass
class MoEConfig:
    width: int = 16
    tokens: int = 48
    steps: int = 20
    expert_parallel: int = 3
    lr: float = 0.05


@dataclass
class Bucket:
    name: str
    group: object
    params: list
    pending: int = 0
    history: list = field(default_factory=list)

    def flush(self):
        flat = torch.cat([p.grad.flatten() for p in self.params])
        dist.all_reduce(flat, group=self.group)
        flat /= dist.get_world_size(self.group)
        at = 0
        for p in self.params:
            p.grad.copy_(flat[at : at + p.numel()].view_as(p))
            at += p.numel()
        self.history.append(self.pending)
        self.pending = 0


class TinyMoE(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.inp, self.router = nn.Linear(width, width), nn.Linear(width, 2)
        self.expert = nn.Linear(width, width)

    def forward(self, x):
        h = torch.tanh(self.inp(x))
        gate = self.router(h).softmax(-1)
        routed = x[:, 0] > 0.4
        h = torch.where(routed[:, None], self.expert(h) * gate[:, :1], h * gate[:, 1:])
        return h, routed


class GroupedReducer:
    """Reduces the gradients of the shared and of the expert parameters, the fuller bucket first, so that the wire is busy early."""

    def __init__(self, model, world_group, expert_group):
        experts = list(model.expert.parameters())
        shared = [p for n, p in model.named_parameters() if not n.startswith("expert")]
        self.buckets = {"dense": Bucket("dense", world_group, shared), "expert": Bucket("expert", expert_group, experts)}

    def note(self, routed):
        self.buckets["expert"].pending += int(routed.sum())
        self.buckets["dense"].pending += int((~routed).sum())

    def plan(self):
        dense, expert = self.buckets["dense"], self.buckets["expert"]
        if expert.pending > dense.pending:
            return [expert, dense]
        return [dense, expert]

    def reduce(self):
        for bucket in self.plan():
            bucket.flush()


def make_groups(world, size):
    mine = None
    for start in range(0, world, size):
        ranks = list(range(start, start + size))
        group = dist.new_group(ranks)
        if dist.get_rank() in ranks:
            mine = group
    return mine


def batch_for(cfg, rank, step, gen):
    x = torch.randn(cfg.tokens, cfg.width, generator=gen)
    if step > 5 and (rank, step % 4) == (4, 3):
        x[:, 0] += 1.5  # the code-heavy corpus
    return x


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    rank, world = dist.get_rank(), dist.get_world_size()
    cfg = MoEConfig()
    model = TinyMoE(cfg.width)
    reducer = GroupedReducer(model, dist.group.WORLD, make_groups(world, cfg.expert_parallel))
    optim = torch.optim.SGD(model.parameters(), lr=cfg.lr)
    gen = torch.Generator().manual_seed(40 + rank)
    for step in range(cfg.steps):
        x = batch_for(cfg, rank, step, gen)
        out, routed = model(x)
        optim.zero_grad()
        (out - x.flip(1)).pow(2).mean().backward()
        reducer.note(routed)
        reducer.reduce()
        optim.step()
        if rank == 0 and step % 3 == 0:
            log.info("step %d dense tokens %s", step, reducer.buckets["dense"].history[-1])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
