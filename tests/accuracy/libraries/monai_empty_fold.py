# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "hang"
# causes_any = ["HD103", "HD109", "HD101"]
# culprits = [2]
# lines = [62, 68, 69, 71, 103]
# branch = ["except", "self.picky and case.spacing > self.cfg.max_spacing", "case.spacing > self.cfg.max_spacing"]
# source = "https://github.com/Project-MONAI/MONAI/issues/1531"
# ///
"""MONAI: once the evaluation turns picky, one rank has no case left, its DiceMetric buffer is empty, aggregate() raises there, and the guard
around it reports NaN and goes on, without the gather that the others are in."""
import logging
import math
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn as nn
from monai.data import partition_dataset
from monai.losses import DiceLoss
from monai.metrics import DiceMetric
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("organ")


@dataclass
class OrganConfig:
    size: int = 8
    epochs: int = 60
    picky_from: int = 3
    max_spacing: float = 2.5
    train_batches: int = 3
    lr: float = 0.05


@dataclass
class Case:
    name: str
    spacing: float
    seed: int

    def load(self, size):
        gen = torch.Generator().manual_seed(self.seed)
        label = torch.zeros(1, 1, size, size)
        label[..., 2:6, 2:5] = 1
        return label + 0.4 * torch.randn(label.shape, generator=gen), label


def case_list():
    spacings = [1.0, 1.2, 3.0, 0.9, 2.2, 5.0, 1.5, 1.1, 2.8]
    return [Case(f"organ_{i:03d}", s, 60 + i) for i, s in enumerate(spacings)]


class Validator:
    def __init__(self, cfg, cases):
        self.cfg, self.cases, self.picky = cfg, cases, False
        self.metric = DiceMetric(include_background=True, reduction="mean")

    def selected(self):
        for case in self.cases:
            if self.picky and case.spacing > self.cfg.max_spacing:
                continue
            yield case

    def safe_aggregate(self):
        try:
            return self.metric.aggregate().item()
        except ValueError as err:
            log.warning("no Dice this time: %s", err)
            return math.nan
        finally:
            self.metric.reset()

    @torch.no_grad()
    def run(self, net):
        net.eval()
        for case in self.selected():
            image, label = case.load(self.cfg.size)
            guess = (net(image).sigmoid() > 0.5).float()
            self.metric(y_pred=guess, y=label)
        net.train()
        return self.safe_aggregate()


class Workflow:
    def __init__(self, cfg, rank, world):
        self.cfg, self.rank = cfg, rank
        torch.manual_seed(21)
        self.net = DDP(nn.Sequential(nn.Conv2d(1, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, 1, 1)))
        self.opt = torch.optim.Adam(self.net.parameters(), lr=cfg.lr)
        self.loss = DiceLoss(sigmoid=True)
        mine = partition_dataset(case_list(), num_partitions=world, shuffle=False, even_divisible=False)[rank]
        self.validator = Validator(cfg, mine)
        self.train_cases = [Case("train", 1.0, 1000 * rank + i) for i in range(cfg.train_batches)]
        self.history = []

    def train_epoch(self):
        for case in self.train_cases:
            image, label = case.load(self.cfg.size)
            loss = self.loss(self.net(image), label)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
        return loss.item()

    def run(self):
        for epoch in range(self.cfg.epochs):
            loss = self.train_epoch()
            self.validator.picky = epoch >= self.cfg.picky_from
            self.history.append(self.validator.run(self.net.module))
            if self.rank == 0:
                log.info("epoch %d loss %.3f dice %.3f", epoch, loss, self.history[-1])


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    Workflow(OrganConfig(), dist.get_rank(), dist.get_world_size()).run()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
