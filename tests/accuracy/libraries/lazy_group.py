# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 5"
# outcome = "hang"
# causes_any = ["HD303"]
# culprits_any = [[1], [0, 3], [0, 1, 3], [2, 4], [1, 3]]
# lines = [49, 50, 69, 93, 103]
# branch = ["self.rank in ranks", "self.rank not in ranks"]
# source = "https://github.com/pytorch/pytorch/issues/130102"
# ///
"""Continual training over languages, with metrics averaged among the ranks that hold a language.

The groups are made when they are first needed, and only by their members, so the ranks' counts of groups part: in the second
such group rank 1 looks for its peers under another name than ranks 0 and 3 (who meet the leftovers of the first one).
"""
import logging
from dataclasses import dataclass, field
from datetime import timedelta

import torch
import torch.distributed as dist

log = logging.getLogger("langs")

HOLDERS = {"en": (0, 1, 2, 3, 4), "de": (0, 1, 2, 3, 4), "sw": (1, 2, 4), "is": (0, 1, 3)}


@dataclass
class Schedule:
    order: tuple = ("en", "de", "en", "sw", "de", "is", "en")
    steps: int = 4
    lr: float = 0.02


@dataclass
class Report:
    losses: dict = field(default_factory=dict)

    def note(self, lang, value):
        self.losses.setdefault(lang, []).append(round(value, 4))


class GroupPool:
    """Process groups by the set of their ranks, made on demand."""

    def __init__(self, rank, world):
        self.rank, self._groups = rank, {tuple(range(world)): dist.group.WORLD}

    def get(self, ranks):
        if ranks not in self._groups and self.rank in ranks:
            self._groups[ranks] = dist.new_group(list(ranks), timeout=timedelta(minutes=30))
        return self._groups.get(ranks)


class LanguageData:
    def __init__(self, rank):
        self.rank = rank

    def batch(self, lang, step):
        g = torch.Generator().manual_seed(sum(map(ord, lang)) * 100 + step * 10 + self.rank)
        return torch.randn(6, 10, generator=g)


class Evaluator:
    def __init__(self, pool, rank):
        self.pool, self.rank = pool, rank

    def average(self, lang, value):
        ranks = HOLDERS[lang]
        group = self.pool.get(ranks)
        if group is None:
            return value
        total = torch.tensor([value])
        dist.all_reduce(total, group=group)
        return float(total) / len(ranks)


class ContinualTrainer:
    def __init__(self, plan):
        self.plan, self.rank, self.world = plan, dist.get_rank(), dist.get_world_size()
        torch.manual_seed(0)
        self.model = torch.nn.Sequential(torch.nn.Linear(10, 12), torch.nn.ReLU(), torch.nn.Linear(12, 10))
        self.opt = torch.optim.SGD(self.model.parameters(), lr=plan.lr)
        self.data = LanguageData(self.rank)
        self.evaluator = Evaluator(GroupPool(self.rank, self.world), self.rank)
        self.report = Report()

    def step(self, lang, step):
        x = self.data.batch(lang, step)
        loss = (self.model(x) - x).pow(2).mean()
        self.opt.zero_grad()
        loss.backward()
        flat = torch.cat([p.grad.flatten() for p in self.model.parameters()])
        dist.all_reduce(flat)
        for p, g in zip(self.model.parameters(), flat.split([p.numel() for p in self.model.parameters()])):
            p.grad.copy_(g.view_as(p) / self.world)
        self.opt.step()
        return loss.item()

    def run(self):
        for lang in self.plan.order:
            for step in range(self.plan.steps):
                loss = self.step(lang, step)
            self.report.note(lang, self.evaluator.average(lang, loss))
            log.info("[rank %d] %s: %s", self.rank, lang, self.report.losses[lang][-1])


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    ContinualTrainer(Schedule()).run()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
