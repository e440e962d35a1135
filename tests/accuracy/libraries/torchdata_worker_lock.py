# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["torchdata"]
# watch = "--give-up-after 8"
# outcome = "hang"
# cause = "HD503"
# culprits = [1]
# lines = [31, 37, 59, 64]
# source = "https://github.com/pytorch/pytorch/issues/75147"
# ///
"""A sample cache is shared by the training process, where a thread refreshes it under a lock, and by the workers of
torchdata's StatefulDataLoader, which are forked.  On rank 1 the fork happens while the thread holds the lock."""
import os
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import Dataset
from torchdata.stateful_dataloader import StatefulDataLoader


class SampleCache:
    def __init__(self, size):
        self.lock = threading.Lock()
        self.values = torch.arange(size * 6, dtype=torch.float32).view(size, 6) / size
        self.hits = 0

    def read(self, index):
        with self.lock:
            self.hits += 1
            return self.values[index]

    def refresh(self, seconds):
        """Re-reads the statistics; a bigger shard takes longer."""
        with self.lock:
            self.values = self.values - self.values.mean(0)
            time.sleep(seconds)


class Refresher(threading.Thread):
    def __init__(self, cache, seconds):
        super().__init__(name="cache-refresh", daemon=True)
        self.cache, self.seconds = cache, seconds

    def run(self):
        self.cache.refresh(self.seconds)


class Samples(Dataset):
    def __init__(self, cache):
        self.cache = cache

    def __len__(self):
        return len(self.cache.values)

    def __getitem__(self, index):
        value = self.cache.read(index)
        return value, value.sum()


def train_epoch(model, optimizer, loader):
    for batch in loader:
        x, y = batch
        loss = (model(x).squeeze(1) - y).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.set_num_threads(1)
    cache = SampleCache(240)
    refresher = Refresher(cache, 3.0 if rank == 1 else 0.01)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 1)))
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    refresher.start()
    time.sleep(0.5)
    loader = StatefulDataLoader(Samples(cache), batch_size=8, num_workers=2, multiprocessing_context="fork")
    for epoch in range(3):
        loss = train_epoch(model, optimizer, loader)
        if rank == 0:
            print(f"epoch {epoch}: {loss:.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
