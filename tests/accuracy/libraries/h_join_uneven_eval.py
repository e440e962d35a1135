# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "healthy"
# source = "https://github.com/pytorch/pytorch/issues/38174"
# ///
"""Uneven data under Join: one rank has many more batches, the others shadow its collectives while they wait; then the main
process evaluates alone on the bare module for a while."""
import logging
import time
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("healthy-join")


@dataclass
class Options:
    features: int = 8
    batches: tuple = (12, 60, 14)
    epochs: int = 2
    pause: float = 0.15


class Feed:
    def __init__(self, options, rank):
        self.options, self.rank = options, rank

    def __iter__(self):
        g = torch.Generator().manual_seed(self.rank)
        for _ in range(self.options.batches[self.rank]):
            time.sleep(self.options.pause)
            x = torch.randn(6, self.options.features, generator=g)
            yield x, x.abs().sum(1, keepdim=True)


def train_epoch(model, optimizer, feed):
    seen = 0
    with Join([model]):
        for x, y in feed:
            loss = F.l1_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen += len(x)
    return seen


@torch.no_grad()
def evaluate(network, options, seconds=9.0):
    """Main process only; beam search on the full test set."""
    network.eval()
    until, best = time.monotonic() + seconds, None
    g = torch.Generator().manual_seed(1234)
    while time.monotonic() < until:
        x = torch.randn(256, options.features, generator=g)
        error = F.l1_loss(network(x), x.abs().sum(1, keepdim=True)).item()
        best = error if best is None else min(best, error)
    network.train()
    return best


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    options, rank = Options(), dist.get_rank()
    model = DDP(nn.Sequential(nn.Linear(options.features, 12), nn.ReLU(), nn.Linear(12, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for epoch in range(options.epochs):
        seen = train_epoch(model, optimizer, Feed(options, rank))
        log.info("[%d] epoch %d saw %d rows", rank, epoch, seen)
        if rank == 0:
            log.info("error %.3f", evaluate(model.module, options))
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
