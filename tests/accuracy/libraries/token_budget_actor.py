# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["torchmetrics"]
# outcome = "hang"
# causes_any = ["HD102", "HD101", "HD106"]
# culprits_any = [[2], [0, 1]]
# lines = [50, 105, 107, 112, 120]
# branch = ["group in self.plan(rollouts)", "min(wanted, len(rollouts))", "self.plan(rollouts)"]
# source = "https://github.com/hiyouga/EasyR1/issues/11004"
# ///
import logging
import os
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torchmetrics import MeanMetric

logging.basicConfig(level=logging.INFO, format="%(asctime)s [r" + os.environ["RANK"] + "] %(message)s")
log = logging.getLogger("actor")


@dataclass
class Rollout:
    tokens: torch.Tensor
    advantage: float
    media_tokens: int = 0

    @property
    def cost(self):
        return self.tokens.shape[0] + self.media_tokens


@dataclass
class BudgetPlanner:
    """Splits a rank's rollouts into micro-batches of about `budget` tokens."""

    budget: int = 64
    history: list = field(default_factory=list)

    def wanted(self, rollouts):
        local = torch.tensor(-(-sum(r.cost for r in rollouts) // self.budget))
        dist.all_reduce(local, op=dist.ReduceOp.MAX)
        return int(local)

    def split(self, rollouts):
        wanted = self.wanted(rollouts)
        count = min(wanted, len(rollouts))
        self.history.append(count)
        groups = [[] for _ in range(count)]
        load = [0] * count
        for r in sorted(rollouts, key=lambda r: -r.cost):
            k = load.index(min(load))
            groups[k].append(r)
            load[k] += r.cost
        return groups


class RolloutSource:
    """What the inference side sends: mostly text; some answers look at a clip."""

    def __init__(self, rank):
        self.rank = rank
        self.gen = torch.Generator().manual_seed(rank + 70)

    def fetch(self, update):
        heavy = update == 7 and self.rank != 2
        count = 4 if update == 7 and self.rank == 2 else 8
        out = []
        for i in range(count):
            tokens = torch.randn(10 + i, 8, generator=self.gen)
            out.append(Rollout(tokens, float(i % 3) - 1.0, media_tokens=48 if heavy else 0))
        return out


class PolicyNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 32), nn.SiLU(), nn.Linear(32, 8))

    def forward(self, tokens):
        return self.body(tokens)


class Actor:
    def __init__(self, planner):
        torch.manual_seed(0)
        self.policy = DDP(PolicyNet())
        self.opt = torch.optim.AdamW(self.policy.parameters(), lr=1e-3)
        self.planner = planner
        self.loss = MeanMetric()

    def plan(self, rollouts):
        return self.planner.split(rollouts)

    def _objective(self, group):
        tokens = torch.cat([r.tokens for r in group])
        weight = torch.cat([torch.full((r.tokens.shape[0],), r.advantage) for r in group])
        ratio = self.policy(tokens).mean(1).exp().clamp(0.8, 1.2)
        return -(ratio * weight).mean() + 0.01 * ratio.pow(2).mean()

    def update(self, rollouts):
        for group in self.plan(rollouts):
            loss = self._objective(group)
            loss.backward()
            self.loss.update(loss.item())
        self.opt.step()
        self.opt.zero_grad()
        everyone = [None] * dist.get_world_size()
        dist.all_gather_object(everyone, self.planner.history[-1])
        return everyone


def main():
    dist.init_process_group("gloo")
    source, actor = RolloutSource(dist.get_rank()), Actor(BudgetPlanner())
    for update in range(1, 15):
        counts = actor.update(source.fetch(update))
        log.info("update %d micro-batches %s", update, counts)
    log.info("loss %.4f", actor.loss.compute())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
