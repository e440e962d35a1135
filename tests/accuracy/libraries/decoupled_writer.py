# /// hangdoc
# watch = "--give-up-after 8"
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = []
# outcome = "hang"
# causes_any = ["HD509", "HD505", "HD504", "HD507", "HD508"]
# culprits = [1]
# lines = [80, 111]
# source = "https://github.com/deepspeedai/DeepSpeed/pull/7742"
# ///
"""Training with a checkpoint engine that writes in a process of its own."""
import logging
import multiprocessing as mp
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

log = logging.getLogger("decoupled")


@dataclass
class EngineConfig:
    steps: int = 60
    interval: int = 15
    quota: tuple = (1 << 20, 40_000, 1 << 20)
    keep_all: bool = True


class Quota:
    """Share of the scratch disk that a worker may fill."""

    def __init__(self, folder, limit):
        self.folder = Path(folder)
        self.limit = limit

    def used(self):
        return sum(p.stat().st_size for p in self.folder.iterdir())

    def charge(self, size):
        if self.used() + size > self.limit:
            raise OSError(122, f"disk quota exceeded in {self.folder.name}")


def writer_main(jobs, done, folder, limit):
    torch.set_num_threads(1)
    quota = Quota(folder, limit)
    while True:
        job = jobs.get()
        if job is None:
            return
        name, tensors = job
        quota.charge(sum(t.size * t.itemsize for t in tensors.values()))
        torch.save({k: torch.from_numpy(v) for k, v in tensors.items()}, quota.folder / name)
        done.set()


class DecoupledCheckpointEngine:
    def __init__(self, folder, limit):
        context = mp.get_context("spawn")
        self.jobs = context.SimpleQueue()
        self.done = context.Event()
        self.pending = None
        self.process = context.Process(
            target=writer_main, args=(self.jobs, self.done, str(folder), limit), daemon=True)
        self.process.start()

    def save(self, name, state):
        self.commit()
        self.pending = name
        self.jobs.put((name, {k: v.detach().numpy().copy() for k, v in state.items()}))

    def commit(self):
        if self.pending is None:
            return
        self.done.wait()
        self.done.clear()
        log.info("%s is on disk", self.pending)
        self.pending = None

    def cleanup(self):
        self.commit()
        self.jobs.put(None)
        self.process.join()


class Run:
    def __init__(self, cfg, engine):
        self.cfg = cfg
        self.engine = engine
        torch.manual_seed(0)
        self.model = DistributedDataParallel(nn.Sequential(nn.Linear(32, 96), nn.ReLU(), nn.Linear(96, 32)))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05)

    def shard(self):
        return self.model.module.state_dict()

    def train(self):
        g = torch.Generator().manual_seed(dist.get_rank())
        for step in range(1, self.cfg.steps + 1):
            x = torch.randn(16, 32, generator=g)
            loss = nn.functional.mse_loss(self.model(x), x)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            if step % self.cfg.interval == 0:
                self.engine.save(f"step{step}.pt", self.shard())
        return float(loss)


def main():
    logging.basicConfig(level=logging.INFO)
    dist.init_process_group("gloo")
    cfg = EngineConfig()
    folder = Path(tempfile.gettempdir()) / f"ckpt-{os.environ['MASTER_PORT']}" / f"worker{dist.get_rank()}"
    folder.mkdir(parents=True)
    engine = DecoupledCheckpointEngine(folder, cfg.quota[dist.get_rank()])
    loss = Run(cfg, engine).train()
    engine.cleanup()
    dist.barrier()
    log.info("loss %.4f, files %s", loss, sorted(p.name for p in folder.iterdir()))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
