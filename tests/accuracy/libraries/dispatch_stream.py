# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["accelerate"]
# outcome = "hang"
# causes_any = ["HD103", "HD101", "HD109"]
# culprits = [0]
# lines = [40, 72, 73, 74, 75, 79, 99]
# source = "huggingface/accelerate#2258"
# ///
"""Accelerate: the main process reads a stream of samples and deals its batches out to all."""
import argparse
import json
import logging
import os

import torch
import torch.nn as nn
from accelerate import Accelerator, DataLoaderConfiguration
from torch.utils.data import DataLoader, IterableDataset

log = logging.getLogger("stream")


def lines(count, seed, cut=()):
    """JSON lines as a download delivers them."""
    generator = torch.Generator().manual_seed(seed)
    for number in range(count):
        row = torch.randn(6, generator=generator)
        text = json.dumps({"x": row.tolist(), "y": float(row.sum() > 0)})
        yield text[:40] if number in cut else text


class Stream(IterableDataset):
    def __init__(self, count, cut=()):
        self.count, self.cut, self.passes = count, cut, 0

    def __iter__(self):
        self.passes += 1
        for text in lines(self.count, self.passes, self.cut if self.passes > 1 else ()):
            record = json.loads(text)
            yield torch.tensor(record["x"]), torch.tensor(record["y"])


class Meter:
    def __init__(self):
        self.total, self.batches = 0.0, 0

    def add(self, loss):
        self.total += loss.item()
        self.batches += 1

    def tensor(self, device):
        return torch.tensor([self.total, float(self.batches)], device=device)


class Runner:
    def __init__(self, accelerator, model, optimizer, loader):
        self.accelerator = accelerator
        self.model, self.optimizer, self.loader = accelerator.prepare(model, optimizer, loader)
        self.criterion = nn.BCEWithLogitsLoss()

    def step(self, x, y):
        self.optimizer.zero_grad()
        loss = self.criterion(self.model(x).squeeze(-1), y)
        self.accelerator.backward(loss)
        self.optimizer.step()
        return loss.detach()

    def epoch(self):
        meter = Meter()
        try:
            for x, y in self.loader:
                meter.add(self.step(x, y))
        except ValueError as error:
            log.debug("rest of the pass left out: %r", error)
        return meter

    def report(self, epoch, meter):
        table = self.accelerator.gather(meter.tensor(self.accelerator.device)).view(-1, 2)
        total, batches = table.sum(0).tolist()
        if self.accelerator.is_main_process:
            log.info("epoch %d loss %.4f", epoch, total / max(batches, 1))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--count", type=int, default=180)
    parser.add_argument("--batch-size", type=int, default=4)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format=f"[{os.environ['RANK']}] %(message)s")
    accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(dispatch_batches=True))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(Stream(args.count, cut=(77,)), batch_size=args.batch_size)
    runner = Runner(accelerator, model, optimizer, loader)
    for epoch in range(args.epochs):
        runner.report(epoch, runner.epoch())
    accelerator.end_training()


if __name__ == "__main__":
    main()
