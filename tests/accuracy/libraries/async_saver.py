# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = []
# outcome = "hang"
# causes_any = ["HD505", "HD508"]
# culprits = [1]
# lines = [59, 60, 75, 76, 81]
# branch = ["used + size > self.quota"]
# source = "https://github.com/google/orbax/issues/605"
# ///
"""Data-parallel training; every process hands its shard of the state to a background writer."""
import io
import logging
import os
import queue
import tempfile
import threading
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("async-save")


class QuotaExceeded(OSError):
    pass


@dataclass
class SaveConfig:
    every: int = 10
    in_flight: int = 2
    quota_mb: float = 0.30
    steps: int = 600


class ScratchStore:
    """The scratch folder of the process, with the quota of its user."""

    def __init__(self, cfg: SaveConfig, name: str):
        self.root = tempfile.mkdtemp(prefix=name)
        self.quota = int(cfg.quota_mb * 1e6)

    def usage(self) -> int:
        return sum(os.path.getsize(os.path.join(self.root, f)) for f in os.listdir(self.root))

    def prune(self, keep: int = 3):
        files = sorted(os.listdir(self.root))
        for name in files[:-keep]:
            os.remove(os.path.join(self.root, name))

    def write(self, step: int, state: dict):
        buf = io.BytesIO()
        torch.save(state, buf)
        size, used = buf.getbuffer().nbytes, self.usage()
        if used + size > self.quota:
            raise QuotaExceeded(f"{used + size} bytes > {self.quota}")
        with open(os.path.join(self.root, f"step_{step:06d}.pt"), "wb") as f:
            f.write(buf.getvalue())
        self.prune()


class BackgroundSaver:
    def __init__(self, store: ScratchStore, in_flight: int):
        self.store = store
        self.inbox = queue.Queue(maxsize=in_flight)
        self.thread = threading.Thread(target=self._work, name="saver", daemon=True)
        self.thread.start()

    def _work(self):
        while True:
            step, state = self.inbox.get()
            self.store.write(step, state)
            self.inbox.task_done()

    def submit(self, step, state):
        snapshot = (step, {k: v.clone() if torch.is_tensor(v) else v for k, v in state.items()})
        self.inbox.put(snapshot)


class ReplayStats:
    """Per-shard example statistics that are part of the state; hot shards see more distinct keys."""

    def __init__(self, rank: int):
        self.gen = torch.Generator().manual_seed(90 + rank)
        self.fan = (3, 40, 3)[rank % 3]
        self.table = torch.zeros(0, 4)

    def observe(self, step: int):
        self.table = torch.cat([self.table, torch.rand(self.fan, 4, generator=self.gen)])[-12000:]


class Trainer:
    def __init__(self, cfg: SaveConfig):
        self.cfg = cfg
        torch.manual_seed(1)
        self.net = DDP(nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)))
        self.opt = torch.optim.SGD(self.net.parameters(), lr=0.05, momentum=0.9)
        self.saver = BackgroundSaver(ScratchStore(cfg, f"shard{dist.get_rank()}_"), cfg.in_flight)
        self.stats = ReplayStats(dist.get_rank())

    def step(self, i: int):
        x = torch.randn(8, 8)
        self.opt.zero_grad()
        (self.net(x) - x.mean(1, keepdim=True)).pow(2).mean().backward()
        self.opt.step()
        self.stats.observe(i)

    def run(self):
        for i in range(1, self.cfg.steps + 1):
            self.step(i)
            if i % self.cfg.every == 0:
                state = dict(self.net.module.state_dict(), stats=self.stats.table)
                self.saver.submit(i, state)
        self.saver.inbox.join()
        log.info("rank %d finished", dist.get_rank())


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    dist.init_process_group("gloo")
    Trainer(SaveConfig()).run()
    dist.barrier()
    dist.destroy_process_group()
