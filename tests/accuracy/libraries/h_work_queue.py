# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "healthy"
# source = "https://github.com/pytorch/pytorch/issues/53840"
# ///
"""Batch inference with a work queue in the store: ranks take the next file when they are free, so they do different numbers of them.
The slow files leave three ranks in the final gathering for a while; one rank reports to rank 0 by point-to-point whenever it likes."""
import logging
import time
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn

log = logging.getLogger("batch")


@dataclass
class QueueConfig:
    files: int = 26
    hidden: int = 12
    quick: float = 0.12
    slow: float = 6.0
    slow_files: tuple = (9, 25)


class WorkQueue:
    """A counter in the store is all the coordination there is."""

    def __init__(self, cfg: QueueConfig):
        self.cfg = cfg
        self.store = dist.PrefixStore("work", dist.distributed_c10d._get_default_store())

    def __iter__(self):
        while (n := self.store.add("next", 1) - 1) < self.cfg.files:
            yield n


class Runner:
    def __init__(self, cfg: QueueConfig):
        self.cfg, self.rank = cfg, dist.get_rank()
        torch.manual_seed(0)
        self.model = nn.Linear(cfg.hidden, cfg.hidden)
        self.done = []

    @torch.no_grad()
    def process(self, n):
        pause = self.cfg.slow if n in self.cfg.slow_files else self.cfg.quick
        end = time.monotonic() + pause
        x = torch.randn(64, self.cfg.hidden, generator=torch.Generator().manual_seed(n))
        while time.monotonic() < end:
            x = self.model(x).tanh()
            time.sleep(0.01)
        return float(x.mean())

    def run(self):
        for n in WorkQueue(self.cfg):
            self.done.append((n, self.process(n)))
        log.info("[rank %d] %d files", self.rank, len(self.done))


def collect(done):
    parts = [None] * dist.get_world_size() if dist.get_rank() == 0 else None
    dist.gather_object(done, parts, dst=0)
    if parts is None:
        return None
    return sorted(item for part in parts for item in part)


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    runner = Runner(QueueConfig())
    runner.run()
    results = collect(runner.done)
    if results is not None:
        assert [n for n, _ in results] == list(range(runner.cfg.files))
        log.info("%d files, mean %.4f", len(results), sum(v for _, v in results) / len(results))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
