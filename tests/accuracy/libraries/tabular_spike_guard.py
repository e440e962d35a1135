# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 8"
# outcome = "hang"
# causes_any = ["HD101", "HD102"]
# culprits = [6]
# lines = [67, 90, 92]
# branch = ["guard.rejects(loss)", "math.isfinite(value)"]
# source = "https://github.com/pytorch/pytorch/issues/64636"
# ///
"""Click model on tabular logs, DDP. A guard throws away batches whose loss is not finite or spikes, as in many repos that
skip NaN batches; the shard of one rank holds one broken row."""
import argparse
import logging
import math
import statistics
from collections import deque
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset

log = logging.getLogger("ctr")


@dataclass
class Config:
    features: int = 12
    hidden: int = 24
    batch_size: int = 16
    rows_per_shard: int = 320
    epochs: int = 3
    lr: float = 3e-3
    guard_factor: float = 8.0


class ClickShard(Dataset):
    """One parquet part per rank; exported with the raw price column."""

    def __init__(self, cfg, part):
        g = torch.Generator().manual_seed(100 + part)
        self.x = torch.randn(cfg.rows_per_shard, cfg.features, generator=g)
        self.y = (self.x[:, :3].sum(1) > 0).float()
        if part == 6:
            price = torch.ones(cfg.rows_per_shard)
            price[137] = 0.0
            self.x[:, 5] = 1.0 / price

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


class LossGuard:
    def __init__(self, factor, window=50):
        self.factor = factor
        self.recent = deque(maxlen=window)
        self.rejected = 0

    def rejects(self, loss):
        value = loss.item()
        if not math.isfinite(value):
            self.rejected += 1
            return True
        if len(self.recent) > 20:
            median = statistics.median(self.recent)
            if value > self.factor * median:
                self.rejected += 1
                return True
        self.recent.append(value)
        return False


def build_model(cfg):
    return nn.Sequential(nn.Linear(cfg.features, cfg.hidden), nn.GELU(), nn.Linear(cfg.hidden, cfg.hidden), nn.GELU(),
                         nn.Linear(cfg.hidden, 1))


def train_epoch(model, loader, optimizer, guard):
    total, count = 0.0, 0
    model.train()
    for x, y in loader:
        logits = model(x).squeeze(1)
        loss = F.binary_cross_entropy_with_logits(logits, y)
        if guard.rejects(loss):
            optimizer.zero_grad(set_to_none=True)
            continue
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        total, count = total + loss.item(), count + 1
    return {"loss": total / max(count, 1), "batches": count, "rejected": guard.rejected}


def report(epoch, row):
    rows = [None] * dist.get_world_size()
    dist.all_gather_object(rows, row)
    if dist.get_rank() == 0:
        mean = sum(r["loss"] for r in rows) / len(rows)
        log.info("epoch %d loss %.4f rejected %d", epoch, mean, sum(r["rejected"] for r in rows))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=Config.epochs)
    args = parser.parse_args()
    cfg = Config(epochs=args.epochs)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DDP(build_model(cfg))
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr)
    guard = LossGuard(cfg.guard_factor)
    shard = ClickShard(cfg, dist.get_rank())
    for epoch in range(cfg.epochs):
        loader = DataLoader(shard, batch_size=cfg.batch_size)
        report(epoch, train_epoch(model, loader, optimizer, guard))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
