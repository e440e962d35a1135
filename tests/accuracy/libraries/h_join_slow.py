# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "healthy"
# source = "pytorch/pytorch#38174 (DDP join)"
# ///
"""Uneven inputs under join(); one rank has few batches, another one has many and reads them from slow storage."""
import argparse
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset


class Shard(IterableDataset):
    def __init__(self, rank, counts, delays):
        self.count, self.delay, self.rank = counts[rank], delays[rank], rank

    def __iter__(self):
        generator = torch.Generator().manual_seed(self.rank)
        for number in range(self.count):
            if number == self.count // 2:
                time.sleep(self.delay)
            x = torch.randn(10, generator=generator)
            yield x, x.sum()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, x):
        return self.layers(x).squeeze(1)


def epoch(model, loader, optimizer):
    seen = 0
    with Join([model]):
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen += len(x)
    return seen


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--delay", type=float, default=20)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DDP(Net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    counts = {0: 120, 1: 40, 2: 320}
    shard = Shard(rank, counts, {0: 0, 1: 0, 2: args.delay})
    seen = epoch(model, DataLoader(shard, args.batch_size), optimizer)
    total = torch.tensor([seen])
    dist.all_reduce(total)
    if rank == 0:
        print(f"seen {total.item()} on {world} ranks", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
