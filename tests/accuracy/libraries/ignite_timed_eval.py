# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = ["ignite"]
# outcome = "hang"
# causes_any = ["HD101", "HD109"]
# culprits_any = [[3], [0, 1, 2]]
# lines = [65, 82, 117, 118]
# branch = ["now - self.last >= self.seconds", "now - self.last", "event_filter=due"]
# source = "https://github.com/pytorch/ignite/issues/577"
# ///
"""Classifier with pytorch-ignite: the evaluator runs every few seconds of training (an event filter),
its metrics are reduced over processes by ignite."""
import logging
import os
import time
from dataclasses import dataclass
from datetime import timedelta

import ignite.distributed as idist
import torch
from ignite.engine import Engine, Events, create_supervised_evaluator
from ignite.metrics import Accuracy, Loss, RunningAverage
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
log = logging.getLogger("clf")


@dataclass
class ClfConfig:
    features: int = 10
    classes: int = 3
    rows: int = 2400
    batch_size: int = 4
    eval_seconds: float = 5.0
    data_root: str = "shards"


class ShardIndex:
    """Row offsets per shard file; big shards take longer to scan."""
    rows_per_shard = {0: 2400, 1: 2400, 2: 2400, 3: 190_000}

    def __init__(self, rank):
        self.rank = rank
        self.offsets = []

    def scan(self):
        for row in range(self.rows_per_shard[self.rank]):
            self.offsets.append(row * 41)
            if row % 1000 == 999:
                time.sleep(0.015)
        return self


class EveryFewSeconds:
    """Event filter: looks every `stride` iterations whether `seconds` have passed."""

    def __init__(self, seconds, stride=20):
        self.seconds, self.stride = seconds, stride
        self.last = time.monotonic()

    def __call__(self, engine, event):
        now = time.monotonic()
        if event % self.stride == 0 and now - self.last >= self.seconds:
            self.last = now
            return True
        return False


def build_model(cfg):
    torch.manual_seed(2)
    return idist.auto_model(nn.Sequential(nn.Linear(cfg.features, 16), nn.ReLU(), nn.Linear(16, cfg.classes)))


def build_trainer(model, optimizer, criterion):
    def update(engine, batch):
        model.train()
        x, y = batch
        loss = criterion(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.03)  # augmentations of the real pipeline
        return loss.item()

    trainer = Engine(update)
    RunningAverage(output_transform=lambda loss: loss).attach(trainer, "loss")
    return trainer


def build_data(cfg, rank, index):
    gen = torch.Generator().manual_seed(rank)
    x = torch.randn(cfg.rows, cfg.features, generator=gen)
    y = x[:, :cfg.classes].argmax(-1)
    split = cfg.rows - 40
    return (DataLoader(TensorDataset(x[:split], y[:split]), batch_size=cfg.batch_size),
            DataLoader(TensorDataset(x[split:], y[split:]), batch_size=cfg.batch_size))


def main():
    torch.set_num_threads(1)
    cfg = ClfConfig()
    idist.initialize("gloo", timeout=timedelta(minutes=30))
    rank = idist.get_rank()
    model = build_model(cfg)
    index = ShardIndex(rank).scan()
    due = EveryFewSeconds(cfg.eval_seconds)
    train, valid = build_data(cfg, rank, index)
    criterion = nn.CrossEntropyLoss()
    optimizer = idist.auto_optim(torch.optim.SGD(model.parameters(), lr=0.05))
    trainer = build_trainer(model, optimizer, criterion)
    evaluator = create_supervised_evaluator(model, metrics={"acc": Accuracy(), "ce": Loss(criterion)})

    @trainer.on(Events.ITERATION_COMPLETED(event_filter=due))
    def validate(engine):
        idist.barrier()
        result = evaluator.run(valid)
        if idist.get_rank() == 0:
            log.info("iteration %d loss %.3f acc %.3f", engine.state.iteration, engine.state.metrics["loss"], result.metrics["acc"])

    trainer.run(train, max_epochs=3)
    idist.finalize()


if __name__ == "__main__":
    main()
