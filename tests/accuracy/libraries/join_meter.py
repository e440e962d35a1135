# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "hang"
# causes_any = ["HD102", "HD109"]
# culprits = [1]
# lines = [47, 66, 67, 69, 73]
# branch = ["for batch in", "self.shards", "in loader", "enumerate(loader)", "self.loader"]
# source = "https://github.com/pytorch/pytorch/issues/38174"
# ///
"""Uneven shards under DDP's join(). Join shadows DDP's own reductions for the rank that ended, not the object gather with which the
tracker collects the step's statistics."""
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


@dataclass
class Settings:
    rows: int = 8
    width: int = 10
    epochs: int = 2


def shard_sizes(world):
    return [14 if r != 1 else 11 for r in range(world)]


class Loader:
    def __init__(self, settings, rank, world):
        self.settings, self.batches = settings, shard_sizes(world)[rank]

    def __iter__(self):
        for i in range(self.batches):
            g = torch.Generator().manual_seed(i)
            yield torch.randn(self.settings.rows, self.settings.width, generator=g)


class Tracker:
    def __init__(self, world):
        self.world, self.history = world, []

    def record(self, step, loss):
        gathered = [None] * self.world
        dist.all_gather_object(gathered, {"step": step, "loss": loss})
        self.history.append(sum(g["loss"] for g in gathered) / self.world)


class Experiment:
    def __init__(self, settings):
        self.settings, self.rank, self.world = settings, dist.get_rank(), dist.get_world_size()
        self.model = DDP(nn.Sequential(nn.Linear(settings.width, 8), nn.Tanh(), nn.Linear(8, 1)))
        self.optimizer = torch.optim.Adam(self.model.parameters())
        self.tracker = Tracker(self.world)

    def one_step(self, batch):
        loss = self.model(batch).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def epoch(self, loader):
        with self.model.join():
            for step, batch in enumerate(loader):
                loss = self.one_step(batch)
                self.tracker.record(step, loss)

    def run(self):
        for _ in range(self.settings.epochs):
            self.epoch(Loader(self.settings, self.rank, self.world))


if __name__ == "__main__":
    dist.init_process_group("gloo")
    Experiment(Settings()).run()
    dist.destroy_process_group()
