# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = []
# outcome = "hang"
# causes_any = ["HD109", "HD101"]
# culprits = [1]
# lines = [71, 75, 85]
# branch = ["self.table.spike(batch_idx)", "sum(v.item() for v in optimizer_state[\"found_inf_per_device\"].values())", "not sum(v.item() for v in optimizer_state[\"found_inf_per_device\"].values())"]
# source = "https://github.com/facebookresearch/fairscale/issues/180"
# ///
"""Item-embedding training in half precision with a sharded optimizer (no wrapper: the items are local)."""
import logging
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer

log = logging.getLogger("items")


@dataclass
class ItemConfig:
    items: int = 64
    dim: int = 16
    rounds: int = 120
    batch: int = 12
    init_scale: float = 1024.0
    growth: int = 400


class Popularity:
    """Counts of the shard; a campaign day makes some items very popular."""

    def __init__(self, cfg: ItemConfig, shard: int):
        g = torch.Generator().manual_seed(70 + shard)
        self.counts = torch.poisson(torch.full((cfg.rounds,), 6.0), generator=g)
        if shard % 3 == 1:
            self.counts[38] = 5000.0

    def spike(self, i: int) -> bool:
        return bool(self.counts[i] > 1000)


class Tower(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.items = nn.Embedding(cfg.items, cfg.dim)
        self.project = nn.Sequential(nn.Linear(cfg.dim, 24), nn.ReLU(), nn.Linear(24, 1))

    def forward(self, ids):
        return self.project(self.items(ids)).squeeze(-1)


class ItemTrainer:
    def __init__(self, cfg: ItemConfig):
        self.cfg = cfg
        torch.manual_seed(12)
        self.net = Tower(cfg)
        self.opt = ZeroRedundancyOptimizer(self.net.parameters(), optimizer_class=torch.optim.Adam, lr=1e-3)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=cfg.init_scale, growth_interval=cfg.growth)
        self.table = Popularity(cfg, dist.get_rank())
        self.gen = torch.Generator().manual_seed(500 + dist.get_rank())
        self.local = 0.0

    def positives(self, batch_idx):
        return self.table.counts[batch_idx].repeat(self.cfg.batch) / 6.0

    def boost(self, batch_idx) -> float:
        return 60000.0 if self.table.spike(batch_idx) else 1.0

    def loss(self, batch_idx):
        ids = torch.randint(0, self.cfg.items, (self.cfg.batch,), generator=self.gen)
        pos = self.positives(batch_idx) * self.boost(batch_idx)
        score = self.net(ids)
        return ((score - pos).half().float() ** 2).mean()

    def step(self, batch_idx):
        self.opt.zero_grad()
        loss = self.loss(batch_idx)
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(self.opt)
        nn.utils.clip_grad_norm_(self.net.parameters(), 5.0)
        self.scaler.step(self.opt)
        self.scaler.update()
        self.local = 0.9 * self.local + 0.1 * float(loss.detach())

    def summary(self):
        stats = [None] * dist.get_world_size()
        dist.all_gather_object(stats, {"loss": self.local, "scale": self.scaler.get_scale()})
        return stats

    def run(self):
        for i in range(self.cfg.rounds):
            self.step(i)
            if (i + 1) % 40 == 0:
                stats = self.summary()
                if dist.get_rank() == 0:
                    log.info("round %d %s", i + 1, stats)


def main():
    logging.basicConfig(level=logging.INFO)
    dist.init_process_group("gloo")
    ItemTrainer(ItemConfig()).run()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
