# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "healthy"
# source = "own: a poll with a deadline"
# ///
"""Before the second phase rank 1 looks for newer labels for a while and goes on with the old ones if none arrive."""
import argparse
import json
import os
import pathlib
import tempfile
import time

import torch
import torch.distributed as dist
import torch.nn as nn


class LabelSource:
    def __init__(self, folder, patience):
        self.folder, self.patience = folder, patience
        self.rules = {"threshold": 0.0, "version": 0}

    def refresh(self):
        end = time.monotonic() + self.patience
        while time.monotonic() < end:
            newer = sorted(self.folder.glob("rules_*.json"))
            if newer:
                self.rules = json.loads(newer[-1].read_text())
                return True
            time.sleep(0.5)
        return False

    def label(self, x):
        return (x.sum(1) > self.rules["threshold"]).long()


class Worker:
    def __init__(self, rank, world, source):
        self.rank, self.world, self.source = rank, world, source
        torch.manual_seed(0)
        self.model = nn.Linear(6, 2)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.generator = torch.Generator().manual_seed(rank)

    def sync_rules(self, owner):
        fresh = self.source.refresh() if self.rank == owner else False
        packed = [self.source.rules, fresh]
        dist.broadcast_object_list(packed, src=owner)
        self.source.rules = packed[0]
        return packed[1]

    def steps(self, count):
        for _ in range(count):
            x = torch.randn(16, 6, generator=self.generator)
            loss = nn.functional.cross_entropy(self.model(x), self.source.label(x))
            self.optimizer.zero_grad()
            loss.backward()
            for p in self.model.parameters():
                dist.all_reduce(p.grad)
                p.grad /= self.world
            self.optimizer.step()
        return loss.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--patience", type=float, default=19)
    parser.add_argument("--owner", type=int, default=1)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    folder = pathlib.Path(tempfile.gettempdir()) / f"rules-{os.environ['MASTER_PORT']}"
    folder.mkdir(exist_ok=True)
    worker = Worker(rank, world, LabelSource(folder, args.patience))
    worker.steps(args.steps)
    fresh = worker.sync_rules(args.owner)
    loss = worker.steps(args.steps)
    if rank == 0:
        print(f"fresh {fresh} loss {loss:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
