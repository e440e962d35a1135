# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "hang"
# causes_any = ["HD102", "HD101", "HD109", "HD106"]
# culprits_any = [[2], [0, 1]]
# lines = [31, 36, 40, 65, 68, 73, 75, 76, 77, 85, 103]
# branch = ["index, (features, labels) in enumerate(self.reader)", "update = last or (index + 1) % self.accumulate == 0", "update", "index % world == rank", "left > 0"]
# source = "microsoft/PyMarlin#80, argonne-lcf/dlio_benchmark#339 (uneven batches per rank)"
# ///
"""Fine-tuning a small tagger with gradient accumulation; every rank reads the shard files that fall to it."""
import argparse
import contextlib
import logging
import math
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("tagger")


class ShardReader:
    """Whole shards are dealt out in turn; a shard knows how many examples it holds."""

    sizes = (48, 40, 52, 16, 24, 20)

    def __init__(self, rank, world, batch_size, width):
        self.mine = [n for index, n in enumerate(self.sizes) if index % world == rank]
        self.batch_size, self.width = batch_size, width
        self.generator = torch.Generator().manual_seed(100 + rank)

    def __len__(self):
        return math.ceil(sum(self.mine) / self.batch_size)

    def __iter__(self):
        left = sum(self.mine)
        while left > 0:
            n = min(self.batch_size, left)
            left -= n
            features = torch.randn(n, self.width, generator=self.generator)
            yield features, (features.sum(1) > 0).long()


class Tagger(nn.Module):
    def __init__(self, width, hidden=32):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, hidden), nn.GELU())
        self.head = nn.Linear(hidden, 2)

    def forward(self, x):
        return self.head(self.body(x))


class Trainer:
    def __init__(self, model, reader, accumulate, lr):
        self.model, self.reader, self.accumulate = model, reader, accumulate
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
        self.criterion = nn.CrossEntropyLoss()
        self.updates = 0

    def backward(self, features, labels, update):
        context = contextlib.nullcontext() if update else self.model.no_sync()
        with context:
            loss = self.criterion(self.model(features), labels)
            (loss / self.accumulate).backward()
        return loss.item()

    def epoch(self):
        total = 0.0
        for index, (features, labels) in enumerate(self.reader):
            last = index + 1 == len(self.reader)
            update = last or (index + 1) % self.accumulate == 0
            total += self.backward(features, labels, update)
            if update:
                self.optimizer.step()
                self.optimizer.zero_grad()
                self.updates += 1
        return total / len(self.reader)

    def summary(self, loss):
        rows = [None] * dist.get_world_size()
        dist.all_gather_object(rows, {"loss": loss, "updates": self.updates})
        return sum(row["loss"] for row in rows) / len(rows)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--accumulate", type=int, default=4)
    parser.add_argument("--width", type=int, default=20)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format=f"[{os.environ['RANK']}] %(message)s")
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DDP(Tagger(args.width))
    trainer = Trainer(model, ShardReader(rank, world, args.batch_size, args.width), args.accumulate, 1e-3)
    for epoch in range(args.epochs):
        loss = trainer.summary(trainer.epoch())
        if rank == 0:
            log.info("epoch %d loss %.4f", epoch, loss)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
