# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["filelock"]
# outcome = "healthy"
# ///
import asyncio
import json
import logging
import multiprocessing as mp
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn as nn
from filelock import FileLock
from torch.distributed.algorithms.join import Join

log = logging.getLogger("index")


@dataclass
class IndexConfig:
    parts: int = 10
    part_seconds: float = 2.2
    workers: int = 2
    root: Path = Path(tempfile.gettempdir()) / f"index_{os.environ.get('MASTER_PORT', '0')}"


def build_part(args):
    number, seconds = args
    acc = 0
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        acc += sum(k * k for k in range(2000)) % 97
        time.sleep(0.02)
    return number, acc % 7 + 3


class IndexBuilder:
    def __init__(self, cfg):
        self.cfg = cfg
        self.done = cfg.root / "index.json"
        self.lock = FileLock(str(cfg.root / "index.lock"))

    def _build(self):
        jobs = [(n, self.cfg.part_seconds) for n in range(self.cfg.parts)]
        with mp.get_context("fork").Pool(self.cfg.workers) as pool:
            sizes = dict(pool.imap_unordered(build_part, jobs))
        staged = self.done.with_suffix(".tmp")
        staged.write_text(json.dumps(sizes))
        staged.replace(self.done)

    def get(self):
        with self.lock:
            if not self.done.exists():
                log.info("pid %d builds the index", os.getpid())
                self._build()
        return json.loads(self.done.read_text())


class Sidecar:
    """Asks a helper process for statistics while the event loop keeps polling a file."""

    CODE = "import time,sys; time.sleep(6); print('ok' * 9000); sys.stderr.write('w' * 90000)"

    def __init__(self, flag):
        self.flag = flag

    async def _helper(self):
        proc = await asyncio.create_subprocess_exec(
            sys.executable, "-c", self.CODE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        out, err = await proc.communicate()
        self.flag.write_text("ready")
        return len(out) + len(err)

    async def _poll(self):
        n = 0
        while not self.flag.exists():
            n += 1
            await asyncio.sleep(0.25)
        return n

    async def run(self):
        size, polls = await asyncio.gather(self._helper(), self._poll())
        return size, polls


def train(rank, sizes):
    model = nn.parallel.DistributedDataParallel(nn.Linear(4, 1))
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    steps = 12 * (rank + 1) + sizes[str(rank)]
    with Join([model]):
        for _ in range(steps):
            loss = model(torch.randn(8, 4)).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            time.sleep(0.15)
    return steps


def main():
    logging.basicConfig(level=logging.INFO)
    logging.getLogger("filelock").setLevel(logging.WARNING)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(hours=1))
    rank = dist.get_rank()
    cfg = IndexConfig()
    cfg.root.mkdir(exist_ok=True)
    if rank == 2:
        log.info("sidecar %s", asyncio.run(Sidecar(cfg.root / f"flag_{rank}").run()))
    sizes = IndexBuilder(cfg).get()
    steps = train(rank, sizes)
    rows = [None] * dist.get_world_size()
    dist.all_gather_object(rows, steps)
    log.info("rank %d: steps %s", rank, rows)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
