# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 2"
# requires = []
# watch = "--give-up-after 8"
# outcome = "hang"
# causes_any = ["HD509", "HD402"]
# culprits = [0]
# lines = [37, 48, 49]
# source = "https://github.com/yumorishita/LiCSBAS2/pull/164"
# ///
"""Rank 0 prepares the features with a multiprocessing Pool while the other rank waits for them.
One pool worker is killed as the OOM killer would do it: the Pool starts another, and map() waits forever for the lost result."""
import multiprocessing
import os
import signal
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def featurise(index):
    if index == 11:
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGKILL)
    return [float(index * k % 5) for k in range(8)]


class FeatureStore:
    def __init__(self, count, workers):
        self.count, self.workers = count, workers

    def build(self):
        context = multiprocessing.get_context("fork")
        with context.Pool(self.workers) as pool:
            rows = pool.map(featurise, range(self.count), chunksize=2)
        return torch.tensor(rows)


class Features:
    """Made on the first rank, used on all."""

    def __init__(self, rank, count=32):
        self.rank, self.count = rank, count

    def load(self):
        table = FeatureStore(self.count, 3).build() if self.rank == 0 else torch.zeros(self.count, 8)
        dist.broadcast(table, 0)
        return table


def train(table):
    model = DDP(nn.Linear(8, 1))
    for row in table:
        model(row).sum().backward()


def main():
    dist.init_process_group("gloo")
    table = Features(dist.get_rank()).load()
    train(table)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
