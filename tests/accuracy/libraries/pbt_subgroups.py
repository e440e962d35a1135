# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 6"
# outcome = "hang"
# causes_any = ["HD303"]
# culprits_any = [[4, 5], [2, 3], [0, 1], [0, 1, 2, 3], [0, 1, 4, 5]]
# lines = [89, 97, 104, 105]
# branch = ["self.trial in replaced"]
# source = "https://github.com/pytorch/pytorch/issues/25390"
# ///
"""Population based training: three trials of two ranks. Losing trials are rebuilt from the winner with new hyperparameters, and a new
process group for them is created by the ranks of the rebuilt trial only."""
import logging
import random
from dataclasses import dataclass, replace

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

log = logging.getLogger("pbt")


@dataclass(frozen=True)
class Hyper:
    lr: float
    dropout: float = 0.0

    def perturb(self, rng):
        return replace(self, lr=self.lr * rng.choice([0.8, 1.25]))


@dataclass
class PBTConfig:
    ranks_per_trial: int = 2
    interval: int = 5
    rounds: int = 40
    warmup_rounds: int = 2
    quantile: float = 0.34
    features: int = 10
    lrs: tuple = (0.05, 0.02, 0.0005)


class Trial:
    """One member of the population, trained data parallel by its own ranks."""

    def __init__(self, cfg, hyper, group, seed):
        torch.manual_seed(seed)
        self.net = nn.Sequential(nn.Linear(cfg.features, 16), nn.ReLU(), nn.Linear(16, 1))
        self.hyper, self.group = hyper, group
        self.opt = torch.optim.SGD(self.net.parameters(), lr=hyper.lr)

    def step(self, x, y):
        loss = F.mse_loss(self.net(x).squeeze(-1), y)
        self.opt.zero_grad()
        loss.backward()
        for p in self.net.parameters():
            dist.all_reduce(p.grad, group=self.group)
            p.grad /= dist.get_world_size(self.group)
        self.opt.step()
        return loss.item()

    def weights(self):
        return {k: v.clone() for k, v in self.net.state_dict().items()}


class Population:
    def __init__(self, cfg, rank, world):
        self.cfg, self.rank, self.rng = cfg, rank, random.Random(0)
        self.trial = rank // cfg.ranks_per_trial
        self.count = world // cfg.ranks_per_trial
        groups = [dist.new_group(self.members(t)) for t in range(self.count)]
        self.member = Trial(cfg, Hyper(cfg.lrs[self.trial]), groups[self.trial], seed=self.trial)
        self.data = torch.Generator().manual_seed(50 + rank)

    def members(self, trial):
        n = self.cfg.ranks_per_trial
        return list(range(trial * n, (trial + 1) * n))

    def train_interval(self):
        losses = []
        for _ in range(self.cfg.interval):
            x = torch.randn(16, self.cfg.features, generator=self.data)
            losses.append(self.member.step(x, x.mean(1)))
        return sum(losses) / len(losses)

    def leaderboard(self, loss):
        rows = [None] * dist.get_world_size()
        dist.all_gather_object(rows, {"trial": self.trial, "loss": loss, "weights": self.member.weights()})
        best = {}
        for row in rows:
            best.setdefault(row["trial"], row)
        return sorted(best.values(), key=lambda r: r["loss"])

    def rebuild(self, winner):
        """Fresh group and optimizer: the old communicator may still hold buffers of the former model."""
        group = dist.new_group(self.members(self.trial))
        self.member = Trial(self.cfg, self.member.hyper.perturb(self.rng), group, seed=self.trial)
        self.member.net.load_state_dict(winner["weights"])

    def exploit(self, ranking):
        cut = max(1, int(self.cfg.quantile * self.count))
        replaced = {row["trial"] for row in ranking[-cut:]}
        if self.trial in replaced:
            self.rebuild(ranking[0])
        return replaced

    def run(self):
        for number in range(self.cfg.rounds):
            loss = self.train_interval()
            ranking = self.leaderboard(loss)
            if number >= self.cfg.warmup_rounds:
                replaced = self.exploit(ranking)
                if self.rank == 0:
                    log.info("round %d best trial %d, rebuilt %s", number, ranking[0]["trial"], sorted(replaced))


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    Population(PBTConfig(), dist.get_rank(), dist.get_world_size()).run()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
