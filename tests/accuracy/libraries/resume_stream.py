# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["torchdata"]
# outcome = "hang"
# causes_any = ["HD102", "HD106", "HD101"]
# culprits = [1]
# lines = [74, 105, 109, 125, 140, 141]
# branch = ["self.inflight is not None and not self.inflight.done()", "for batch in self.loader", "not self.inflight.done()"]
# source = "https://github.com/meta-pytorch/torchft/issues/309"
# ///
import logging
import os
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import Dataset, DistributedSampler
from torchdata.stateful_dataloader import StatefulDataLoader

log = logging.getLogger("recover")


@dataclass
class Settings:
    samples: int = 144
    batch_size: int = 4
    interrupt_at: int = 7
    root: Path = Path(tempfile.gettempdir()) / f"recover_{os.environ.get('MASTER_PORT', '0')}"


class Series(Dataset):
    def __init__(self, n):
        g = torch.Generator().manual_seed(1)
        self.x = torch.randn(n, 6, generator=g)
        self.y = self.x.sum(1, keepdim=True)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


class VolumeWriter:
    """Writes to a mounted volume; the bandwidth that the volume grants differs by mount."""

    BANDWIDTH = {"vol-a": 5e6, "vol-b": 3.6e2}

    def __init__(self, volume):
        self.rate = self.BANDWIDTH[volume]

    def put(self, obj, path):
        tmp = path.with_suffix(".part")
        torch.save(obj, tmp)
        time.sleep(tmp.stat().st_size / self.rate)
        tmp.replace(path)


class LoaderSnapshots:
    def __init__(self, path, writer):
        self.path = path
        self.writer = writer
        self.pool = ThreadPoolExecutor(1)
        self.inflight = None

    def offer(self, state):
        if self.inflight is not None and not self.inflight.done():
            return False
        self.inflight = self.pool.submit(self.writer.put, state, self.path)
        return True

    def latest(self):
        self.inflight.result()
        return torch.load(self.path, weights_only=False)


class Interrupted(Exception):
    pass


class Job:
    def __init__(self, cfg, rank, world):
        self.cfg, self.rank, self.world = cfg, rank, world
        volume = "vol-b" if rank % 4 == 1 else "vol-a"
        cfg.root.mkdir(exist_ok=True)
        self.snapshots = LoaderSnapshots(cfg.root / f"loader_{rank}.pt", VolumeWriter(volume))
        self.model = DDP(nn.Linear(6, 1))
        self.opt = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.build_loader()

    def build_loader(self):
        data = Series(self.cfg.samples)
        sampler = DistributedSampler(data, self.world, self.rank, shuffle=False)
        self.loader = StatefulDataLoader(data, self.cfg.batch_size, sampler=sampler, num_workers=0)

    def train(self, fail_at=None):
        seen = 0
        for batch in self.loader:
            x, y = batch
            loss = nn.functional.mse_loss(self.model(x), y)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            seen += 1
            self.snapshots.offer(self.loader.state_dict())
            time.sleep(0.12)
            if fail_at is not None and seen == fail_at:
                raise Interrupted(seen)
        return seen

    def recover(self):
        state = self.snapshots.latest()
        self.build_loader()
        self.loader.load_state_dict(state)

    def summary(self, steps):
        rows = [None] * self.world
        dist.all_gather_object(rows, {"rank": self.rank, "steps": steps})
        return rows


def main():
    logging.basicConfig(level=logging.INFO)
    dist.init_process_group("gloo", timeout=timedelta(hours=1))
    cfg = Settings()
    job = Job(cfg, dist.get_rank(), dist.get_world_size())
    try:
        job.train(fail_at=cfg.interrupt_at)
    except Interrupted as stop:
        log.info("interrupted after %s steps, recovering", stop)
        job.recover()
    dist.barrier()
    steps = job.train()
    rows = job.summary(steps)
    log.info("steps per rank: %s", rows)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
