# /// hangdoc
# watch = "--give-up-after 8"
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = []
# outcome = "hang"
# causes_any = ["HD508", "HD507"]
# culprits_any = [[1], [2], [1, 2]]
# lines = [70, 71, 66, 59]
# branch = ["not final.exists()", "while not final.exists()", "final.exists()"]
# source = "https://github.com/allenai/OLMo/pull/235"
# ///
"""Sharded saving: every worker writes its part, the folder is renamed when all parts are there."""
import logging
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import CosineAnnealingLR
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

log = logging.getLogger("protein")


@dataclass
class Options:
    epochs: int = 6
    save_every: int = 2
    batch: int = 16
    pattern: str = "epoch{epoch}-val{val_loss:.2f}"


class Sequences:
    def __init__(self, seed=9):
        g = torch.Generator().manual_seed(seed)
        x = torch.randn(480, 20, generator=g)
        self.train = TensorDataset(x, x[:, :2].sum(-1, keepdim=True))
        v = torch.randn(90, 20, generator=g)
        self.valid = TensorDataset(v, v[:, :2].sum(-1, keepdim=True) + 0.4 * torch.randn(90, 1, generator=g))

    def loader(self, split, batch):
        data = getattr(self, split)
        return DataLoader(data, batch_size=batch, sampler=DistributedSampler(data, shuffle=split == "train"))


class ShardedSaver:
    def __init__(self, root, pattern):
        self.root = Path(root)
        self.pattern = pattern

    def part(self):
        return f"rank{dist.get_rank()}.pt"

    def save(self, payload, **values):
        final = self.root / self.pattern.format(**values)
        staging = self.root / f"epoch{values['epoch']}-staging"
        staging.mkdir(parents=True, exist_ok=True)
        torch.save(payload, staging / self.part())
        dist.barrier()
        if dist.get_rank() == 0:
            staging.replace(final)
        self.wait_for(final)
        return final

    def wait_for(self, final):
        while not final.exists():
            time.sleep(0.2)


class Loop:
    def __init__(self, data, options, saver):
        self.options = options
        self.saver = saver
        self.train_loader = data.loader("train", options.batch)
        self.valid_loader = data.loader("valid", options.batch)
        self.model = DistributedDataParallel(nn.Sequential(nn.Linear(20, 24), nn.ReLU(), nn.Linear(24, 1)))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=4e-3)
        self.scheduler = CosineAnnealingLR(self.optimizer, options.epochs)

    def train_epoch(self, epoch):
        self.train_loader.sampler.set_epoch(epoch)
        self.model.train()
        for x, y in self.train_loader:
            loss = nn.functional.mse_loss(self.model(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        self.scheduler.step()

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        losses = [nn.functional.mse_loss(self.model.module(x), y) for x, y in self.valid_loader]
        return float(torch.stack(losses).mean())

    def payload(self):
        return {"optimizer": self.optimizer.state_dict(), "scheduler": self.scheduler.state_dict(),
                "rng": torch.get_rng_state()}

    def run(self):
        for epoch in range(1, self.options.epochs + 1):
            self.train_epoch(epoch)
            val_loss = self.validate()
            log.info("epoch %d validation %.4f", epoch, val_loss)
            if epoch % self.options.save_every == 0:
                where = self.saver.save(self.payload(), epoch=epoch, val_loss=val_loss)
                log.info("wrote %s", where.name)


def main():
    logging.basicConfig(level=logging.INFO)
    dist.init_process_group("gloo")
    torch.manual_seed(4)
    options = Options()
    root = Path(tempfile.gettempdir()) / f"protein-{os.environ['MASTER_PORT']}"
    Loop(Sequences(), options, ShardedSaver(root, options.pattern)).run()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
