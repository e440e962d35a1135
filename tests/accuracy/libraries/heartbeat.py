# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "hang"
# causes_any = ["HD101"]
# culprits = [2]
# lines = [33, 36, 37, 63, 68, 70]
# branch = ["self.last", "interval", "due", "monotonic"]
# source = "https://github.com/idaholab/moose/pull/26588"
# ///
"""A health check by the wall clock: every 1.5 seconds a monitored_barrier. The rank with the slow disk looks at its clock later in the
same step than all others and finds the check due one step earlier."""
import time
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn


@dataclass
class Options:
    check_interval: float = 1.5
    step_seconds: float = 0.2
    slow_rank: int = 2
    slow_seconds: float = 0.19


class HealthCheck:
    def __init__(self, interval):
        self.interval, self.last, self.rounds = interval, time.monotonic(), 0

    def due(self):
        return time.monotonic() - self.last > self.interval

    def __call__(self):
        if self.due():
            dist.monitored_barrier()
            self.last = time.monotonic()
            self.rounds += 1


class Disk:
    def __init__(self, opts, rank):
        self.pause = opts.slow_seconds if rank == opts.slow_rank else 0.0

    def write_trace(self):
        time.sleep(self.pause)


class Trainer:
    def __init__(self, opts):
        self.opts, self.rank = opts, dist.get_rank()
        self.model, self.disk = nn.Linear(5, 5), Disk(opts, self.rank)
        dist.barrier()
        self.check = HealthCheck(opts.check_interval)

    def compute(self):
        time.sleep(self.opts.step_seconds)
        self.model(torch.randn(2, 5)).sum().backward()

    def reduce(self):
        for p in self.model.parameters():
            dist.all_reduce(p.grad)

    def fit(self, steps):
        for _ in range(steps):
            self.compute()
            self.reduce()
            self.disk.write_trace()
            self.check()


def main():
    dist.init_process_group("gloo")
    Trainer(Options()).fit(60)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
