# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# outcome = "hang"
# causes_any = ["HD111", "HD101"]
# culprits = [1]
# lines = [64, 65, 104]
# branch = ["self.training and self.coin() < self.rate(index)", "self.coin() < self.rate(index)"]
# source = "https://github.com/catalyst-team/catalyst/issues/1110"
# ///
"""Image classifier with stochastic depth that grows with the epoch."""
import logging
import random
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("depth")


@dataclass
class DepthConfig:
    stages: int = 4
    width: int = 16
    warm_epochs: int = 2
    final_rate: float = 0.2
    epochs: int = 10
    batches: int = 8


class Stage(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.conv = nn.Conv1d(w, w, 3, padding=1)
        self.scale = nn.Parameter(torch.ones(1, w, 1))

    def forward(self, x):
        return x + self.scale * torch.relu(self.conv(x))


class DepthNet(nn.Module):
    def __init__(self, cfg: DepthConfig, rng: random.Random):
        super().__init__()
        self.cfg = cfg
        self.rng = rng
        self.progress = 0.0
        self.stem = nn.Conv1d(3, cfg.width, 3, padding=1)
        self.stages = nn.ModuleList(Stage(cfg.width) for _ in range(cfg.stages))
        self.head = nn.Linear(cfg.width, 5)
        self.register_buffer("seen", torch.zeros(1))

    def coin(self) -> float:
        return self.rng.random()

    def rate(self, index: int) -> float:
        return self.cfg.final_rate * self.progress * (index + 1) / len(self.stages)

    def forward(self, x):
        self.seen += len(x)
        h = self.stem(x)
        for index, stage in enumerate(self.stages):
            if self.training and self.coin() < self.rate(index):
                continue
            h = stage(h)
        return self.head(h.mean(-1))


class Curriculum:
    """Maps the epoch to the strength of the regularisation."""

    def __init__(self, cfg: DepthConfig):
        self.cfg = cfg

    def __call__(self, epoch: int) -> float:
        if epoch < self.cfg.warm_epochs:
            return 0.0
        return min(1.0, (epoch - self.cfg.warm_epochs + 1) / (self.cfg.epochs - self.cfg.warm_epochs))


def batches(cfg, rank, epoch):
    g = torch.Generator().manual_seed(epoch * 97 + rank)
    for _ in range(cfg.batches):
        x = torch.randn(6, 3, 20, generator=g)
        yield x, (x.mean((1, 2)) * 20).long().clamp(0, 4)


def run(cfg: DepthConfig):
    rank = dist.get_rank()
    torch.manual_seed(0)
    net = DepthNet(cfg, random.Random(4321 + rank))
    model = DDP(net)
    opt = torch.optim.SGD(model.parameters(), lr=0.02)
    strength = Curriculum(cfg)
    for epoch in range(cfg.epochs):
        net.progress = strength(epoch)
        hits = torch.zeros(1)
        for x, y in batches(cfg, rank, epoch):
            opt.zero_grad()
            logits = model(x)
            loss = nn.functional.cross_entropy(logits, y)
            loss.backward()
            opt.step()
            hits += (logits.argmax(1) == y).sum()
            gathered = [torch.zeros(1) for _ in range(dist.get_world_size())]
            dist.all_gather(gathered, hits)
        if rank == 0:
            log.info("epoch %d strength %.2f accuracy %.3f", epoch, net.progress, sum(gathered).item() / (6 * cfg.batches * len(gathered)))


def main():
    logging.basicConfig(level=logging.INFO)
    dist.init_process_group("gloo")
    run(DepthConfig())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
