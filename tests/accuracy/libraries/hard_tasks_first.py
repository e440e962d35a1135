# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# outcome = "hang"
# causes_any = ["HD107", "HD106"]
# culprits_any = [[0], [1], [2], [3], [0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3], [0, 1, 2], [0, 1, 3], [0, 2, 3], [1, 2, 3]]
# lines = [70, 75, 92]
# source = "https://github.com/meta-pytorch/torchrec/pull/4149"
# ///
"""Multi-task training, hardest task first; every task synchronises over its own group."""
import logging
from dataclasses import dataclass, field
from typing import Dict, List

import torch
import torch.distributed as dist
from torch import nn

log = logging.getLogger("tasks")


@dataclass
class TaskConfig:
    names: List[str] = field(default_factory=lambda: ["parse", "tag", "link"])
    decay: float = 0.8
    steps: int = 300
    warmup: int = 45
    dim: int = 12
    lr: float = 0.03


class TaskData:
    """The local corpus: the mix of easy and hard examples differs between the shards."""

    def __init__(self, cfg: TaskConfig, rank: int):
        self.g = torch.Generator().manual_seed(900 + rank)
        self.cfg = cfg
        self.noise = {n: 0.2 + 0.5 * torch.rand(1, generator=self.g).item() for n in cfg.names}

    def draw(self, task: str):
        x = torch.randn(10, self.cfg.dim, generator=self.g)
        y = x[:, self.cfg.names.index(task)] + self.noise[task] * torch.randn(10, generator=self.g)
        return x, y


class TaskNet(nn.Module):
    def __init__(self, cfg: TaskConfig):
        super().__init__()
        self.adapters = nn.ModuleDict({n: nn.Sequential(nn.Linear(cfg.dim, 8), nn.Tanh(), nn.Linear(8, 1)) for n in cfg.names})

    def forward(self, x, task):
        return self.adapters[task](x).squeeze(-1)


class MultiTaskTrainer:
    def __init__(self, cfg: TaskConfig):
        self.cfg = cfg
        self.tasks = list(cfg.names)
        self.groups: Dict[str, dist.ProcessGroup] = {n: dist.new_group(backend="gloo") for n in cfg.names}
        torch.manual_seed(0)
        self.net = TaskNet(cfg)
        self.opt = {n: torch.optim.SGD(self.net.adapters[n].parameters(), lr=cfg.lr) for n in cfg.names}
        self.data = TaskData(cfg, dist.get_rank())
        self.ema = {n: 1.0 for n in cfg.names}
        self.step = 0

    def order(self):
        if self.step < self.cfg.warmup:
            return list(self.tasks)
        return sorted(self.tasks, key=lambda t: -self.ema[t])

    def sync(self, task: str):
        params = [p for p in self.net.adapters[task].parameters()]
        flat = torch.cat([p.grad.flatten() for p in params])
        dist.all_reduce(flat, group=self.groups[task])
        flat /= dist.get_world_size()
        offset = 0
        for p in params:
            p.grad.copy_(flat[offset : offset + p.numel()].view_as(p))
            offset += p.numel()

    def train_task(self, task: str) -> float:
        x, y = self.data.draw(task)
        self.opt[task].zero_grad()
        loss = nn.functional.mse_loss(self.net(x, task), y)
        loss.backward()
        self.sync(task)
        self.opt[task].step()
        return loss.item()

    def round(self):
        for task in self.order():
            loss = self.train_task(task)
            self.ema[task] = self.cfg.decay * self.ema[task] + (1 - self.cfg.decay) * loss
        self.step += 1

    def fit(self):
        while self.step < self.cfg.steps:
            self.round()
            if self.step % 20 == 0:
                log.info("rank %d step %d %s", dist.get_rank(), self.step, {k: round(v, 3) for k, v in self.ema.items()})


def main():
    logging.basicConfig(level=logging.INFO)
    dist.init_process_group("gloo")
    MultiTaskTrainer(TaskConfig()).fit()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
