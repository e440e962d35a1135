# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "healthy"
# ///
"""All ranks give an optional helper service some seconds to appear on the store, then go on without it."""
import argparse
import logging
import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("train")


class HelperDirectory:
    """Where helpers of the cluster leave their addresses, if they run at all."""

    def __init__(self, store, patience):
        self.store, self.patience = dist.PrefixStore("helpers", store), timedelta(seconds=patience)

    def find(self, name):
        try:
            self.store.wait([name], self.patience)
            return self.store.get(name).decode()
        except dist.DistStoreError:
            return None

    def poll(self, name, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.store.check([name]):
                return self.store.get(name).decode()
            time.sleep(0.25)
        return None


class Cache:
    def __init__(self, address):
        self.address, self.rows = address, {}

    def fetch(self, number):
        if number not in self.rows:
            generator = torch.Generator().manual_seed(number)
            self.rows[number] = torch.randn(12, generator=generator)
        return self.rows[number]

    @property
    def kind(self):
        return "remote" if self.address else "local"


def agree(found):
    """Everybody uses the helper, or nobody."""
    vote = torch.tensor([1.0 if found else 0.0])
    dist.all_reduce(vote, op=dist.ReduceOp.MIN)
    return bool(vote.item())


def train(model, cache, steps, rank):
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for step in range(steps):
        batch = torch.stack([cache.fetch((step * 8 + row) % 500 + 1000 * rank) for row in range(8)])
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--patience", type=float, default=9.0)
    parser.add_argument("--steps", type=int, default=150)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format=f"[{os.environ['RANK']}] %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    directory = HelperDirectory(dist.distributed_c10d._get_default_store(), args.patience)
    model = DDP(nn.Linear(12, 1))
    train(model, Cache(None), args.steps, rank)
    address = directory.find("feature-cache")
    cache = Cache(address if agree(address) else None)
    log.info("features are %s", cache.kind)
    train(model, cache, args.steps, rank)
    metrics = directory.poll("metrics-sink", args.patience - 2 * rank)
    loss = train(model, cache, args.steps, rank)
    log.info("loss %.3f, metrics go to %s", loss, metrics or "nowhere")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
