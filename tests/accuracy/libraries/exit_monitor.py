# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 2"
# requires = []
# watch = "--give-up-after 8"
# outcome = "hang"
# cause = "HD701"
# culprits = [1]
# lines = [28, 56, 59]
# source = "https://github.com/lincc-frameworks/hyrax/pull/1011"
# ///
"""A monitor thread that is no daemon samples the machine until stop() is called, which only a training without incident does.
Rank 1 met an exception that main() swallowed with a log line; its interpreter waits for the monitor and the launcher for it."""
import logging
import threading

import torch
import torch.distributed as dist
from torch import nn

log = logging.getLogger("train")


class Monitor(threading.Thread):
    def __init__(self, interval):
        super().__init__(name="GpuMonitor")
        self.interval, self.stopped, self.samples = interval, threading.Event(), []

    def run(self):
        while not self.stopped.wait(self.interval):
            self.samples.append(torch.get_num_threads())

    def stop(self):
        self.stopped.set()
        self.join()


class Exporter:
    def __init__(self, rank):
        self.rank = rank

    def save(self, model):
        if self.rank == 1:
            raise OSError("Disk quota exceeded")
        return sum(p.numel() for p in model.parameters())


def fit(model, steps):
    for _ in range(steps):
        model(torch.randn(2, 4)).sum().backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)


def train(rank):
    model = nn.Linear(4, 4)
    monitor = Monitor(interval=20)
    monitor.start()
    fit(model, 6)
    dist.barrier()
    Exporter(rank).save(model)
    monitor.stop()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    try:
        train(rank)
    except OSError as error:
        log.error("rank %d could not save: %s", rank, error)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
