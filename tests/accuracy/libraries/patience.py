# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "hang"
# causes_any = ["HD102", "HD101", "HD109"]
# culprits_any = [[2], [0, 1]]
# lines = [31, 35, 61, 74, 84, 86, 90, 91, 92]
# branch = ["patience.exhausted(error)", "self.waited >= self.rounds", "value < self.best - self.delta"]
# source = "Lightning-AI/pytorch-lightning#379, skorch-dev/skorch#737"
# ///
"""Trains a regressor and ends when the validation error has not improved for a while."""
import argparse
import dataclasses
import math

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


@dataclasses.dataclass
class Patience:
    rounds: int = 3
    delta: float = 1e-3
    best: float = math.inf
    waited: int = 0

    def exhausted(self, value):
        if value < self.best - self.delta:
            self.best, self.waited = value, 0
        else:
            self.waited += 1
        return self.waited >= self.rounds


def make_data(rank, world, batch_size):
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(192, 6, generator=generator)
    y = x @ torch.arange(1.0, 7.0).unsqueeze(1) + 0.05 * torch.randn(192, 1, generator=generator)
    train = TensorDataset(x[:128], y[:128])
    valid_x, valid_y = x[128:].clone(), y[128:].clone()
    valid_y[1::3] += 40 * torch.sign(valid_x[1::3, :1])
    valid = TensorDataset(valid_x, valid_y)
    sampler = DistributedSampler(train, world, rank, seed=1)
    held_out = DistributedSampler(valid, world, rank, shuffle=False)
    return DataLoader(train, batch_size, sampler=sampler), DataLoader(valid, batch_size, sampler=held_out), sampler


class Loop:
    def __init__(self, model, lr):
        self.model = model
        self.optimizer = torch.optim.Adam(model.parameters(), lr=lr)
        self.history = []

    def fit_epoch(self, loader):
        self.model.train()
        for x, y in loader:
            self.optimizer.zero_grad()
            nn.functional.mse_loss(self.model(x), y).backward()
            self.optimizer.step()

    @torch.no_grad()
    def validate(self, loader):
        self.model.eval()
        errors = [nn.functional.l1_loss(self.model.module(x), y).item() for x, y in loader]
        value = sum(errors) / len(errors)
        self.history.append(value)
        return value

    def gather_history(self):
        table = [None] * dist.get_world_size()
        dist.all_gather_object(table, self.history)
        return table


def train(args, rank, world):
    torch.manual_seed(2)
    network = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))
    loop = Loop(DDP(network), args.lr)
    train_loader, valid_loader, sampler = make_data(rank, world, args.batch_size)
    patience = Patience(args.patience)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        loop.fit_epoch(train_loader)
        error = loop.validate(valid_loader)
        if rank == 0 and epoch % 10 == 0:
            print(f"epoch {epoch} error {error:.4f}", flush=True)
        if patience.exhausted(error):
            break
    table = loop.gather_history()
    if rank == 0:
        print("epochs", [len(row) for row in table], flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=400)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--patience", type=int, default=3)
    parser.add_argument("--lr", type=float, default=5e-3)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    train(args, dist.get_rank(), dist.get_world_size())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
