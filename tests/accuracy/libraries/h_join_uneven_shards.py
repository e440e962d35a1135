# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "healthy"
# ///
"""DDP with the Join context: the shards differ in length, early ranks shadow the collectives of the late ones; rank 3 also reads its last
batches slowly."""
import logging
import time
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("ragged")


@dataclass
class RaggedConfig:
    features: int = 10
    batch: int = 8
    epochs: int = 3
    sizes: tuple = (12, 9, 17, 24)
    lr: float = 0.05
    slow_seconds: float = 0.45


class RaggedShard:
    def __init__(self, cfg, rank):
        self.cfg, self.rank = cfg, rank
        self.gen = torch.Generator().manual_seed(rank)

    def __iter__(self):
        for index in range(self.cfg.sizes[self.rank]):
            if self.rank == 3 and index > 14:
                time.sleep(self.cfg.slow_seconds)  # cold blocks of the object store
            x = torch.randn(self.cfg.batch, self.cfg.features, generator=self.gen)
            yield x, (x.sum(1) > 0).long()


class Epoch:
    def __init__(self):
        self.batches, self.loss = 0, 0.0

    def add(self, loss):
        self.batches += 1
        self.loss += loss

    def merge(self):
        t = torch.tensor([self.loss, float(self.batches)])
        dist.all_reduce(t)
        return (t[0] / t[1]).item(), int(t[1])


def run_epoch(model, opt, shard):
    epoch = Epoch()
    with Join([model]):
        for x, y in shard:
            loss = F.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            epoch.add(loss.item())
    return epoch


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    cfg, rank = RaggedConfig(), dist.get_rank()
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(cfg.features, 16), nn.ReLU(), nn.Linear(16, 2)))
    opt = torch.optim.SGD(model.parameters(), lr=cfg.lr)
    for number in range(cfg.epochs):
        mean, batches = run_epoch(model, opt, RaggedShard(cfg, rank)).merge()
        if rank == 0:
            log.info("epoch %d loss %.3f over %d batches", number, mean, batches)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
