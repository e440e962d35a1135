# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = []
# outcome = "healthy"
# ///
"""Unevenly long shards, joined by DDP; features are computed by loader workers and a child process."""
import logging
import multiprocessing as mp
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset

log = logging.getLogger("uneven")


@dataclass
class ShardPlan:
    base: int = 12
    extra: int = 18
    batch: int = 4
    pause: float = 0.06
    epochs: int = 2

    def rows(self, rank):
        return self.batch * (self.base + self.extra * rank)


class Shard(IterableDataset):
    def __init__(self, plan, rank):
        self.plan = plan
        self.rank = rank

    def __iter__(self):
        g = torch.Generator().manual_seed(self.rank)
        for _ in range(self.plan.rows(self.rank)):
            time.sleep(self.plan.pause / self.plan.batch)
            x = torch.randn(8, generator=g)
            yield x, x.sum().unsqueeze(0)


def spectrum(seed, size=60, repeats=40):
    torch.set_num_threads(1)
    g = torch.Generator().manual_seed(seed)
    total = 0.0
    for _ in range(repeats):
        m = torch.randn(size, size, generator=g)
        total += float(torch.linalg.eigvalsh(m @ m.T)[-1])
        time.sleep(0.05)
    return total / repeats


def scale_of_targets(rank):
    if rank != 0:
        values = [None]
    else:
        with ProcessPoolExecutor(2, mp_context=mp.get_context("spawn")) as pool:
            values = [sum(pool.map(spectrum, range(3))) / 3]
    dist.broadcast_object_list(values, src=0)
    return values[0]


def run_epoch(model, optimizer, loader, scale):
    seen = 0
    with Join([model, optimizer]):
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x), y / scale)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen += len(x)
    return seen


def main():
    logging.basicConfig(level=logging.INFO)
    dist.init_process_group("gloo")
    rank, plan = dist.get_rank(), ShardPlan()
    torch.manual_seed(0)
    scale = scale_of_targets(rank)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)))
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.SGD, lr=0.01)
    loader = DataLoader(Shard(plan, rank), batch_size=plan.batch, num_workers=1)
    for epoch in range(plan.epochs):
        seen = torch.tensor([run_epoch(model, optimizer, loader, scale)])
        dist.all_reduce(seen)
        log.info("epoch %d: %d rows over all workers", epoch, int(seen))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
