# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "hang"
# causes_any = ["HD305"]
# culprits = [1]
# lines = [63, 64, 65, 70, 74, 75]
# branch = ["digest == self.published"]
# source = "https://github.com/pytorch/pytorch/issues/52607"
# ///
"""Every epoch each rank publishes its shard list under shards/<epoch>/<rank> in the store and waits for all keys of the epoch.
Rank 1's list did not change, so it is 'already published' - under the key of the former epoch. All ranks wait, rank 1 too."""
import hashlib
import json
import logging
import random
from dataclasses import dataclass, field
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn

log = logging.getLogger("shards")


@dataclass
class EpochConfig:
    epochs: int = 8
    shards_per_rank: int = 6
    batch: int = 8
    width: int = 12
    store_timeout: timedelta = field(default=timedelta(hours=2))


class ShardPicker:
    """Draws a fresh set of shards every epoch; ranks whose pool is used up keep what they have."""

    def __init__(self, rank, cfg):
        self.rng, self.rank, self.cfg = random.Random(17 + rank), rank, cfg
        self.pool = [f"part-{rank:02d}-{i:03d}" for i in range(9 if rank == 1 else 400)]
        self.current = []

    def draw(self):
        fresh = [self.pool.pop(0) for _ in range(3) if self.pool]
        self.current = sorted((self.current + fresh)[-self.cfg.shards_per_rank :])
        return list(self.current)


class Manifest:
    """The lists of all ranks, exchanged through the store: no tensors, no collectives."""

    def __init__(self, rank, world, cfg):
        self.store = dist.PrefixStore("shards", dist.distributed_c10d._get_default_store())
        self.rank, self.world, self.cfg = rank, world, cfg
        self.published = None

    def key(self, epoch, rank):
        return f"{epoch}/{rank}"

    def publish(self, epoch, shards):
        text = json.dumps(shards)
        digest = hashlib.sha1(text.encode()).hexdigest()
        if digest == self.published:
            return
        self.store.set(self.key(epoch, self.rank), text)
        self.published = digest

    def collect(self, epoch):
        keys = [self.key(epoch, r) for r in range(self.world)]
        self.store.wait(keys, self.cfg.store_timeout)
        return {r: json.loads(self.store.get(k)) for r, k in enumerate(keys)}

    def exchange(self, epoch, shards):
        self.publish(epoch, shards)
        return self.collect(epoch)


class Learner:
    def __init__(self, cfg):
        torch.manual_seed(5)
        self.net = nn.Sequential(nn.Linear(cfg.width, cfg.width), nn.ReLU(), nn.Linear(cfg.width, 1))
        self.optim = torch.optim.Adam(self.net.parameters(), 1e-2)
        self.cfg = cfg

    def train_shard(self, name):
        gen = torch.Generator().manual_seed(int(hashlib.md5(name.encode()).hexdigest()[:6], 16))
        x = torch.randn(self.cfg.batch, self.cfg.width, generator=gen)
        self.optim.zero_grad()
        loss = (self.net(x) - x.sum(1, keepdim=True)).pow(2).mean()
        loss.backward()
        for p in self.net.parameters():
            dist.all_reduce(p.grad)
        self.optim.step()
        return loss.item()


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    rank, world = dist.get_rank(), dist.get_world_size()
    cfg = EpochConfig()
    picker, manifest, learner = ShardPicker(rank, cfg), Manifest(rank, world, cfg), Learner(cfg)
    for epoch in range(cfg.epochs):
        lists = manifest.exchange(epoch, picker.draw())
        rounds = min(len(v) for v in lists.values())
        losses = [learner.train_shard(name) for name in lists[rank][:rounds]]
        if rank == 0:
            log.info("epoch %d: %d shards each, loss %.3f", epoch, rounds, sum(losses) / len(losses))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
