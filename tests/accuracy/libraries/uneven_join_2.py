# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["filelock"]
# outcome = "healthy"
# ///
"""Uneven inputs under Join, a locked export in turns, a store mailbox and a daemon writer thread."""
import logging
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from filelock import FileLock
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("uneven")


@dataclass
class Config:
    dim: int = 16
    base_batches: int = 30
    slow_s: float = 0.12
    export_s: float = 1.5


class Journal:
    """Writes lines from a queue; closes when it gets None."""

    def __init__(self, path: Path):
        self.path = path
        self.lines: queue.Queue = queue.Queue(maxsize=8)
        self.thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        with open(self.path, "w") as fh:
            while (line := self.lines.get()) is not None:
                time.sleep(0.05)
                fh.write(line + "\n")

    def put(self, line: str) -> None:
        self.lines.put(line)

    def close(self) -> None:
        self.lines.put(None)
        self.thread.join()


class Export:
    """Converts the weights in a child process, one rank at a time."""

    CHILD = "import sys, time; time.sleep(float(sys.argv[1])); print('converted', len(sys.stdin.buffer.read()))"

    def __init__(self, folder: Path, cfg: Config):
        self.lock = FileLock(str(folder / "export.lock"))
        self.cfg = cfg

    def run(self, model: torch.nn.Module) -> str:
        blob = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
        with self.lock:
            done = subprocess.run(
                [sys.executable, "-c", self.CHILD, str(self.cfg.export_s)], input=blob, capture_output=True, check=True
            )
        return done.stdout.decode().strip()


def batches(cfg: Config, rank: int):
    for n in range(cfg.base_batches + rank * 25):
        if rank == 2 and n > cfg.base_batches:
            time.sleep(cfg.slow_s)
        yield torch.randn(8, cfg.dim)


def train(cfg: Config, journal: Journal) -> DDP:
    rank = dist.get_rank()
    model = DDP(torch.nn.Linear(cfg.dim, 1))
    opt = torch.optim.SGD(model.parameters(), lr=1e-2)
    seen = 0
    with Join([model]):
        for x in batches(cfg, rank):
            opt.zero_grad()
            model(x).square().mean().backward()
            opt.step()
            seen += 1
            if seen % 10 == 0:
                journal.put(f"rank {rank} batch {seen}")
    log.info("rank %d joined after %d batches", rank, seen)
    return model


def hand_over(store, rank: int, world: int) -> None:
    """Passes a token round; everybody polls for it."""
    if rank == 0:
        store.set("token/0", "go")
    while not store.check([f"token/{rank}"]):
        time.sleep(0.1)
    time.sleep(1.0)
    if rank + 1 < world:
        store.set(f"token/{rank + 1}", "go")


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    logging.getLogger("filelock").setLevel(logging.WARNING)
    dist.init_process_group("gloo", timeout=timedelta(hours=1))
    rank, world, cfg = dist.get_rank(), dist.get_world_size(), Config()
    folder = Path(tempfile.gettempdir()) / f"uneven-{os.environ['MASTER_PORT']}"
    folder.mkdir(exist_ok=True)
    journal = Journal(folder / f"journal-{rank}.txt")
    model = train(cfg, journal)
    dist.barrier()
    log.info("rank %d: %s", rank, Export(folder, cfg).run(model.module))
    dist.barrier()
    hand_over(dist.distributed_c10d._get_default_store(), rank, world)
    journal.close()
    dist.barrier()
    dist.destroy_process_group()
    log.info("rank %d done", rank)


if __name__ == "__main__":
    main()
