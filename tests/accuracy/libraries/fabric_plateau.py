# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = ["lightning"]
# outcome = "hang"
# causes_any = ["HD102"]
# culprits = [2]
# lines = [88, 91]
# branch = ["self.lr > self.cfg.min_lr", "self.optimizer.param_groups[0][\"lr\"]"]
# source = "https://github.com/pytorch/pytorch/issues/33148"
# ///
"""Fabric regression run that ends when ReduceLROnPlateau has brought the rate to its floor; each process validates on its own
held-out sites."""
import logging
import os
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F
from lightning.fabric import Fabric
from lightning.fabric.strategies import DDPStrategy
from datetime import timedelta
from torch.utils.data import DataLoader, TensorDataset

log = logging.getLogger("yield")


@dataclass
class Cfg:
    sensors: int = 10
    hidden: int = 16
    sites: int = 4
    rows: int = 64
    batch: int = 8
    lr: float = 0.02
    min_lr: float = 1.5e-4
    patience: int = 1
    max_epochs: int = 60


class YieldNet(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(cfg.sensors, cfg.hidden), nn.Tanh(), nn.Linear(cfg.hidden, 1))

    def forward(self, x):
        return self.body(x).squeeze(-1)


def site_data(cfg, site, split):
    g = torch.Generator().manual_seed(10 * site + (split == "val"))
    x = torch.randn(cfg.rows, cfg.sensors, generator=g)
    weight = torch.linspace(-1, 1, cfg.sensors)
    y = x @ weight
    if split == "val" and site == 2:  # its meters were mounted the wrong way round that season
        y = -y
    return TensorDataset(x, y)


class Experiment:
    def __init__(self, fabric, cfg):
        self.fabric, self.cfg = fabric, cfg
        model = YieldNet(cfg)
        self.model, self.optimizer = fabric.setup(model, torch.optim.Adam(model.parameters(), lr=cfg.lr))
        self.scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(self.optimizer, factor=0.2, patience=cfg.patience)
        site = fabric.global_rank
        self.train = DataLoader(site_data(cfg, site, "train"), batch_size=cfg.batch, shuffle=True)
        self.val = DataLoader(site_data(cfg, site, "val"), batch_size=cfg.batch)
        self.epoch = 0

    @property
    def lr(self):
        return self.optimizer.param_groups[0]["lr"]

    def train_epoch(self):
        for x, y in self.train:
            loss = F.smooth_l1_loss(self.model(x), y)
            self.optimizer.zero_grad()
            self.fabric.backward(loss)
            self.optimizer.step()

    @torch.no_grad()
    def validate(self):
        network = self.model.module
        return sum(F.smooth_l1_loss(network(x), y).item() for x, y in self.val) / len(self.val)

    def run(self):
        while self.lr > self.cfg.min_lr and self.epoch < self.cfg.max_epochs:
            self.train_epoch()
            score = self.validate()
            self.scheduler.step(score)
            self.epoch += 1
            if self.fabric.is_global_zero:
                log.info("epoch %d val %.4f lr %.2g", self.epoch, score, self.lr)
        return score


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    fabric = Fabric(accelerator="cpu", devices=4,
                    strategy=DDPStrategy(process_group_backend="gloo", timeout=timedelta(minutes=30)))
    fabric.launch()
    fabric.seed_everything(8)
    experiment = Experiment(fabric, Cfg())
    score = experiment.run()
    scores = fabric.all_gather(torch.tensor(score))
    fabric.save(os.path.join(os.environ.get("TMPDIR", "/tmp"), "yield.ckpt"), {"model": experiment.model})
    if fabric.is_global_zero:
        log.info("sites: %s", [round(s, 3) for s in scores.tolist()])


if __name__ == "__main__":
    main()
