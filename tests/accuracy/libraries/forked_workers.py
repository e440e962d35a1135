# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 2"
# outcome = "hang"
# causes_any = ["HD503", "HD505"]
# culprits = [0]
# lines = [32, 36, 39, 46, 62, 78, 84, 102, 104]
# source = "pytorch/pytorch#1355, ultralytics/ultralytics#26085"
# ///
"""Trains with worker processes; usage counters are sent to a collector in the background between epochs."""
import argparse
import json
import os
import threading
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset


class Usage:
    """Counters of the input pipeline. Sending takes as long as the collector takes."""

    def __init__(self, path=None):
        self.path = path
        self.lock = threading.Lock()
        self.values = {}

    def count(self, name, n=1):
        with self.lock:
            self.values[name] = self.values.get(name, 0) + n

    def send(self, tag):
        with self.lock:
            line = json.dumps({"tag": tag, **self.values})
            if self.path:
                time.sleep(0.7)
                with open(self.path, "a") as file:
                    file.write(line + "\n")
            self.values.clear()

    def send_in_background(self, tag):
        thread = threading.Thread(target=self.send, args=(tag,), name="usage", daemon=True)
        thread.start()
        return thread


class Windows(Dataset):
    def __init__(self, usage, count=48, length=16):
        self.usage = usage
        generator = torch.Generator().manual_seed(1)
        self.series = torch.randn(count + length, generator=generator).cumsum(0)
        self.count, self.length = count, length

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        window = self.series[index:index + self.length]
        self.usage.count("windows")
        return window - window[0], self.series[index + self.length] - window[0]


class Forecaster(nn.Module):
    def __init__(self, length=16, hidden=24):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(length, hidden), nn.SiLU(), nn.Linear(hidden, 1))

    def forward(self, x):
        return self.layers(x).squeeze(-1)


def build(rank, usage):
    torch.manual_seed(0)
    model = DDP(Forecaster())
    loader = DataLoader(Windows(usage), batch_size=8, num_workers=1)
    return model, loader, torch.optim.Adam(model.parameters(), lr=1e-2)


def epoch(model, loader, optimizer):
    losses = []
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return sum(losses) / len(losses)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=6)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    usage = Usage(f"usage-{os.getpid()}.jsonl" if rank == 0 else None)
    model, loader, optimizer = build(rank, usage)
    for number in range(args.epochs):
        loss = epoch(model, loader, optimizer)
        usage.count("epochs")
        usage.send_in_background(f"epoch-{number}")
        if rank == 1:
            print(f"epoch {number} loss {loss:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
