# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "hang"
# causes_any = ["HD505"]
# culprits = [3]
# lines = [36, 56, 66, 71, 72, 76]
# source = "https://github.com/BaguaSys/bagua/pull/35"
# ///
"""Asynchronous logging: records go over a bounded queue to a writer thread. On the last rank the writer died (its file was rotated away),
the queue ran full and the training thread waits for room in it."""
import io
import queue
import threading
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn


@dataclass
class LogConfig:
    capacity: int = 10
    rotate_after: int = 25
    rotate_on: int = 3


class RotatingSink:
    def __init__(self, cfg, rank):
        self.cfg, self.rank, self.lines, self.file = cfg, rank, 0, io.StringIO()

    def write(self, line):
        self.lines += 1
        if self.rank == self.cfg.rotate_on and self.lines == self.cfg.rotate_after:
            self.file.close()
        self.file.write(line + "\n")


class Writer(threading.Thread):
    def __init__(self, inbox, sink):
        super().__init__(name="log-writer", daemon=True)
        self.inbox, self.sink = inbox, sink

    def run(self):
        while True:
            self.sink.write(self.inbox.get())


class AsyncLogger:
    def __init__(self, cfg, rank):
        self.inbox = queue.Queue(cfg.capacity)
        self.writer = Writer(self.inbox, RotatingSink(cfg, rank))
        self.writer.start()

    def log(self, **values):
        self.inbox.put(" ".join(f"{k}={v}" for k, v in values.items()))


class Trainer:
    def __init__(self, cfg):
        self.rank, self.model = dist.get_rank(), nn.Linear(4, 4)
        self.logger = AsyncLogger(cfg, self.rank)

    def reduce(self):
        for p in self.model.parameters():
            dist.all_reduce(p.grad)

    def step(self, i):
        loss = self.model(torch.randn(2, 4)).square().mean()
        loss.backward()
        self.reduce()
        self.logger.log(step=i, loss=round(loss.item(), 4), rank=self.rank)

    def fit(self, steps):
        for i in range(steps):
            self.step(i)


def main():
    threading.excepthook = lambda args: None
    dist.init_process_group("gloo")
    Trainer(LogConfig()).fit(100)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
