# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "healthy"
# ///
"""A three-stage pipeline whose middle stage asks a rate-limited service, so that most of the time everybody waits for it."""
import argparse
import logging
import os
import queue
import threading
import time

import torch
import torch.distributed as dist

log = logging.getLogger("stages")


class RateLimiter:
    """Allows a number of calls, then makes the caller wait until the period is over."""

    def __init__(self, calls, period):
        self.calls, self.period = calls, period
        self.left, self.since = calls, time.monotonic()

    def acquire(self):
        if self.left == 0:
            time.sleep(max(0.0, self.period - (time.monotonic() - self.since)))
            self.left, self.since = self.calls, time.monotonic()
        self.left -= 1


class Writer(threading.Thread):
    """Keeps the results of the last stage, in a thread of its own."""

    def __init__(self):
        super().__init__(name="writer")
        self.inbox, self.total, self.rows = queue.Queue(), 0.0, 0
        self.start()

    def run(self):
        while (tensor := self.inbox.get()) is not None:
            self.total += float(tensor.sum())
            self.rows += len(tensor)

    def close(self):
        self.inbox.put(None)
        self.join()


class Stage:
    def __init__(self, rank, world, args):
        self.rank, self.world, self.args = rank, world, args
        torch.manual_seed(rank)
        self.layer = torch.nn.Linear(16, 16)
        self.limiter = RateLimiter(args.calls, args.period) if rank == 1 else None
        self.writer = Writer() if rank == world - 1 else None

    def take(self, number):
        if self.rank == 0:
            return torch.full((4, 16), float(number % 7))
        buffer = torch.empty(4, 16)
        dist.recv(buffer, src=self.rank - 1)
        return buffer

    def give(self, tensor):
        if self.writer:
            self.writer.inbox.put(tensor)
        else:
            dist.send(tensor, dst=self.rank + 1)

    @torch.no_grad()
    def run(self):
        for number in range(self.args.items):
            tensor = self.take(number)
            if self.limiter:
                self.limiter.acquire()
            self.give(torch.tanh(self.layer(tensor)))
        if self.writer:
            self.writer.close()
            log.info("%d rows, sum %.3f", self.writer.rows, self.writer.total)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--items", type=int, default=120)
    parser.add_argument("--calls", type=int, default=40)
    parser.add_argument("--period", type=float, default=12.0)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format=f"[{os.environ['RANK']}] %(message)s")
    dist.init_process_group("gloo")
    Stage(dist.get_rank(), dist.get_world_size(), args).run()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
