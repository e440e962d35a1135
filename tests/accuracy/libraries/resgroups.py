# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 5"
# outcome = "hang"
# causes_any = ["HD303"]
# culprits_any = [[0, 3], [1, 2, 4]]
# lines = [58, 60, 61, 76]
# branch = ["side not in self.known", "side == self.base"]
# source = "https://github.com/pytorch/pytorch/issues/130102"
# ///
"""Multi-resolution training. Statistics are averaged among the ranks that see the same resolution; the group of a resolution is
made when a rank first meets it, so only ranks 0 and 3 call new_group for side 24. That works, but their count of groups is one
ahead: when all ranks make the validation group some steps later, they look for it under different names and all wait."""
import logging
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn

log = logging.getLogger("multires")


@dataclass
class MultiResConfig:
    sides: tuple = (8, 16, 24)
    base: int = 8
    steps: int = 18
    batch: int = 4
    lr: float = 0.02


class ResolutionPlan:
    """Which rank trains on which side at which step; computed alike on every rank."""

    def __init__(self, cfg, world):
        self.cfg, self.world = cfg, world

    def row(self, step):
        sides = [self.cfg.base] * self.world
        if step % 3 == 2 and step > 4:
            big = self.cfg.sides[-1] if step > 6 else self.cfg.sides[0]
            for r in range(0, self.world, 3):
                sides[r] = big
        return sides

    def members(self, step, side):
        return [r for r, s in enumerate(self.row(step)) if s == side]


class ResolutionGroups:
    def __init__(self, plan, rank, base):
        self.plan, self.rank, self.base = plan, rank, base
        self.known = {}

    def get(self, step):
        side = self.plan.row(step)[self.rank]
        if side == self.base:
            return side, None
        if side not in self.known:
            self.known[side] = dist.new_group(self.plan.members(step, side), timeout=timedelta(minutes=30))
        return side, self.known[side]


class Validation:
    """A group of its own, so that validation may overlap with training; made when it is first due."""

    def __init__(self, every):
        self.every, self.group = every, None

    def due(self, step):
        return step % self.every == self.every - 1

    def run(self, model, side):
        if self.group is None:
            self.group = dist.new_group(timeout=timedelta(minutes=30))
        with torch.no_grad():
            x = torch.rand(8, 1, side, side)
            err = (model(x, None) - x.mean((1, 2, 3))[:, None]).abs().mean()
        dist.all_reduce(err, group=self.group)
        return err.item() / dist.get_world_size(self.group)


class PatchNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 3, padding=1)
        self.head = nn.Linear(8, 1)
        self.register_buffer("mean", torch.zeros(8))

    def forward(self, x, group):
        h = torch.relu(self.conv(x)).mean((2, 3))
        self.update_mean(h.detach().mean(0), group)
        return self.head(h - self.mean)

    def update_mean(self, batch_mean, group):
        if group is not None:
            dist.all_reduce(batch_mean, group=group)
            batch_mean /= dist.get_world_size(group)
        self.mean.lerp_(batch_mean, 0.1)


def average_gradients(model, world):
    flat = torch.cat([p.grad.flatten() for p in model.parameters()])
    dist.all_reduce(flat)
    flat /= world
    at = 0
    for p in model.parameters():
        p.grad.copy_(flat[at : at + p.numel()].view_as(p))
        at += p.numel()


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    rank, world = dist.get_rank(), dist.get_world_size()
    cfg = MultiResConfig()
    plan = ResolutionPlan(cfg, world)
    groups = ResolutionGroups(plan, rank, cfg.base)
    model = PatchNet()
    optim = torch.optim.SGD(model.parameters(), lr=cfg.lr)
    validation = Validation(every=10)
    for step in range(cfg.steps):
        side, group = groups.get(step)
        x = torch.rand(cfg.batch, 1, side, side)
        optim.zero_grad()
        loss = (model(x, group) - x.mean((1, 2, 3))[:, None]).pow(2).mean()
        loss.backward()
        average_gradients(model, world)
        optim.step()
        log.info("rank %d step %d side %d loss %.4f", rank, step, side, loss.item())
        if validation.due(step):
            log.info("step %d validation error %.4f", step, validation.run(model, cfg.base))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
