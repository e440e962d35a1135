# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "hang"
# causes_any = ["HD111"]
# culprits = [3]
# lines = [38, 39, 58, 71, 77, 80, 83]
# branch = ["has_depth", "depth is not None"]
# source = "https://github.com/pytorch/pytorch/pull/55248"
# ///
"""DDP with static_graph=True on a two-headed model. One shard has no depth maps in one batch, so that rank's loss leaves the depth
head out; meters are reduced on a group of their own."""
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


@dataclass
class Options:
    features: int = 12
    iterations: int = 30
    print_freq: int = 1


class TwoHeads(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.trunk = nn.Linear(features, 32)
        self.segment = nn.Linear(32, 4)
        self.depth = nn.Linear(32, 1)

    def forward(self, image, has_depth):
        h = self.trunk(image).relu()
        out = {"segment": self.segment(h)}
        if has_depth:
            out["depth"] = self.depth(h)
        return out


class Scenes:
    def __init__(self, rank):
        self.rank = rank

    def sample(self, i, features):
        depth = None if (self.rank == 3 and i == 9) else torch.rand(4, 1)
        return torch.randn(4, features), torch.randint(4, (4,)), depth


class Meter:
    def __init__(self, group):
        self.group, self.total, self.count = group, 0.0, 0

    def update(self, value):
        t = torch.tensor([value, 1.0])
        dist.all_reduce(t, group=self.group)
        self.total, self.count = self.total + t[0].item(), self.count + int(t[1])


class Runner:
    def __init__(self, opts):
        self.opts, self.rank = opts, dist.get_rank()
        self.model = DDP(TwoHeads(opts.features), static_graph=True)
        self.meter = Meter(dist.new_group(backend="gloo"))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05)

    def criterion(self, out, labels, depth):
        loss = F.cross_entropy(out["segment"], labels)
        if depth is not None:
            loss = loss + F.l1_loss(out["depth"], depth)
        return loss

    def iteration(self, i, scenes):
        image, labels, depth = scenes.sample(i, self.opts.features)
        out = self.model(image, depth is not None)
        loss = self.criterion(out, labels, depth)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        if i % self.opts.print_freq == 0:
            self.meter.update(loss.item())

    def fit(self):
        scenes = Scenes(self.rank)
        for i in range(self.opts.iterations):
            self.iteration(i, scenes)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    Runner(Options()).fit()
    dist.destroy_process_group()
