# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 2"
# outcome = "healthy"
# source = "pytorch forum: first batch of a worker takes long"
# ///
"""Volumes are unpacked by worker processes; the first ones of an epoch are far larger on one rank."""
import argparse
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Volumes(Dataset):
    """Sizes in megabytes; unpacking takes its time."""

    def __init__(self, count, rate):
        self.sizes = [4] * count
        self.sizes[1] = self.sizes[3] = 900
        self.rate = rate

    def __len__(self):
        return len(self.sizes)

    def __getitem__(self, index):
        time.sleep(self.sizes[index] / self.rate)
        generator = torch.Generator().manual_seed(index)
        volume = torch.randn(1, 8, 8, 8, generator=generator)
        return volume, volume.mean()


class Net(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.conv = nn.Conv3d(1, width, 3, padding=1)
        self.out = nn.Linear(width, 1)

    def forward(self, x):
        return self.out(torch.relu(self.conv(x)).mean((2, 3, 4))).squeeze(1)


def fit(model, loader, optimizer):
    losses = []
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    mean = torch.stack(losses).mean()
    dist.all_reduce(mean)
    return mean.item() / dist.get_world_size()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=48)
    parser.add_argument("--rate", type=float, default=95)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    data = Volumes(args.count, args.rate)
    sampler = DistributedSampler(data, world, rank, shuffle=False)
    loader = DataLoader(data, batch_size=2, sampler=sampler, num_workers=2)
    model = DDP(Net())
    loss = fit(model, loader, torch.optim.SGD(model.parameters(), lr=0.1))
    if rank == 0:
        print(f"loss {loss:.5f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
