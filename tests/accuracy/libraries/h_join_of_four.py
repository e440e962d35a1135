# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "healthy"
# source = "https://github.com/pytorch/pytorch/issues/38174"
# ///
"""Healthy: DDP under the Join context manager with very uneven inputs. Rank 2 has 14 slow batches more; the others shadow its
collectives, or sit in them, for half a minute."""
import logging
import time
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("join")


@dataclass
class UnevenConfig:
    batches: tuple = (3, 4, 18, 2)
    long_batch_seconds: float = 2.0
    width: int = 10
    lr: float = 0.05


class Speech:
    """Short utterances first; the long ones (all on rank 2) are slow to decode."""

    def __init__(self, cfg, rank):
        self.cfg, self.rank = cfg, rank
        self.gen = torch.Generator().manual_seed(rank)

    def decode(self, index):
        x = torch.randn(8, self.cfg.width, generator=self.gen)
        if index >= 4:
            until = time.time() + self.cfg.long_batch_seconds
            while time.time() < until:
                x = torch.fft.irfft(torch.fft.rfft(x, dim=1), n=self.cfg.width, dim=1)
        return x

    def __iter__(self):
        for i in range(self.cfg.batches[self.rank]):
            yield self.decode(i)


class Trainer:
    def __init__(self, cfg, rank):
        self.cfg, self.rank = cfg, rank
        self.model = DDP(nn.Sequential(nn.Linear(cfg.width, 16), nn.ReLU(), nn.Linear(16, 1)))
        self.optim = ZeroRedundancyOptimizer(self.model.parameters(), optimizer_class=torch.optim.Adam, lr=cfg.lr)
        self.seen = 0

    def epoch(self):
        with Join([self.model, self.optim]):
            for x in Speech(self.cfg, self.rank):
                self.optim.zero_grad()
                loss = (self.model(x) - x.sum(1, keepdim=True)).pow(2).mean()
                loss.backward()
                self.optim.step()
                self.seen += 1
        total = torch.tensor([self.seen])
        dist.all_reduce(total)
        return int(total)


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    rank = dist.get_rank()
    seen = Trainer(UnevenConfig(), rank).epoch()
    if rank == 0:
        log.info("%d batches", seen)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
