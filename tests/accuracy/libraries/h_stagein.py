# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "healthy"
# source = "https://github.com/rwth-i6/returnn/issues/1548"
# ///
"""Healthy: rank 3 copies a large file to the scratch disk at a limited rate (some 25 s, hardly any CPU) between two epochs; the
others wait in monitored_barrier."""
import logging
import os
import tempfile
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

log = logging.getLogger("stagein")


@dataclass
class StageConfig:
    remote: Path
    scratch: Path
    megabytes: int = 50
    rate: float = 2.0
    epochs: int = 3
    steps: int = 8


class RateLimitedCopy:
    """Keeps below `rate` MB/s so that the shared file system stays usable for others."""

    def __init__(self, rate, chunk=1 << 19):
        self.rate, self.chunk = rate, chunk

    def run(self, src, dst):
        began, done = time.monotonic(), 0
        part = dst.with_suffix(".part")
        with open(src, "rb") as f, open(part, "wb") as out:
            while data := f.read(self.chunk):
                out.write(data)
                done += len(data)
                ahead = done / (self.rate * 1e6) - (time.monotonic() - began)
                if ahead > 0:
                    time.sleep(ahead)
            out.flush()
            os.fsync(out.fileno())
        os.replace(part, dst)
        return done


class EpochFiles:
    def __init__(self, cfg, rank):
        self.cfg, self.rank = cfg, rank

    def file(self, epoch):
        src = self.cfg.remote / f"epoch{epoch}-rank{self.rank}.bin"
        size = self.cfg.megabytes << 20 if (epoch, self.rank) == (1, 3) else 1 << 20
        with open(src, "wb") as f:
            f.truncate(size)
        return src

    def stage(self, epoch):
        src = self.file(epoch)
        dst = self.cfg.scratch / src.name
        copied = RateLimitedCopy(self.cfg.rate).run(src, dst)
        log.info("rank %d epoch %d: %.1f MB staged", self.rank, epoch, copied / 1e6)
        dist.monitored_barrier(timeout=timedelta(minutes=20))
        return dst


def epoch(model, optim, path, steps):
    with open(path, "rb") as f:
        raw = torch.frombuffer(bytearray(f.read(steps * 64)), dtype=torch.uint8).float().view(steps, 4, 16)
    for x in raw + torch.randn(steps, 4, 16):
        optim.zero_grad()
        (model(x) - x.mean(1, keepdim=True)).pow(2).mean().backward()
        optim.step()


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    rank = dist.get_rank()
    cfg = StageConfig(Path(tempfile.mkdtemp(prefix="remote-")), Path(tempfile.mkdtemp(prefix="scratch-")))
    files = EpochFiles(cfg, rank)
    model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 1)))
    optim = torch.optim.SGD(model.parameters(), lr=0.01)
    for e in range(cfg.epochs):
        epoch(model, optim, files.stage(e), cfg.steps)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
