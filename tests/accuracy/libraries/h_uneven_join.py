# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = []
# outcome = "healthy"
# watch = "--give-up-after 10"
# source = "https://github.com/argonne-lcf/dlio_benchmark/pull/339"
# ///
"""DDP with uneven inputs under the Join context manager, then rank 1 alone archives the run on disk before the common goodbye."""
import hashlib
import logging
import lzma
import os
import tempfile
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("uneven")
ARCHIVE_SECONDS = 22.0


class Feed:
    """Rank r gets 60 + 40 r batches; the feed decodes them itself, which costs time."""

    def __init__(self, rank):
        self.n, self.gen = 60 + 40 * rank, torch.Generator().manual_seed(rank)

    def __iter__(self):
        for _ in range(self.n):
            raw = torch.randn(64, 64, generator=self.gen)
            for _ in range(6):
                raw = torch.tanh(raw @ raw.T / 8)
            yield raw[:, :16]


class Run:
    def __init__(self, rank):
        torch.manual_seed(0)
        self.rank = rank
        self.model = DDP(nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16)))
        self.opt = ZeroRedundancyOptimizer(self.model.parameters(), torch.optim.SGD, lr=0.05)

    def fit(self):
        seen = 0
        with Join([self.model, self.opt]):
            for x in Feed(self.rank):
                loss = nn.functional.mse_loss(self.model(x), x)
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
                seen += 1
        log.info("%d batches, loss %.4f", seen, loss.item())
        return seen

    def announce(self, seen):
        """The last rank knows the real number of batches."""
        last = dist.get_world_size() - 1
        if self.rank == last:
            count = torch.tensor([seen])
            dist.broadcast(count, src=last)
        else:
            count = torch.zeros(1, dtype=torch.long)
            dist.broadcast(count, src=last)
        return int(count)


def archive(path, model):
    blob = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
    until, written = time.monotonic() + ARCHIVE_SECONDS, 0
    digest = hashlib.sha256()
    with open(path, "wb") as f:
        packer = lzma.LZMACompressor(preset=6)
        while time.monotonic() < until:
            noise = os.urandom(1 << 16)
            digest.update(noise)
            chunk = packer.compress(blob + noise)
            f.write(chunk)
            f.flush()
            written += len(chunk)
            if written > 24 << 20:
                f.seek(0)
                f.truncate()
                written = 0
        f.write(packer.flush())
    log.info("archive %s, %s", path.name, digest.hexdigest()[:12])


def main():
    dist.init_process_group("gloo", timeout=timedelta(minutes=10))
    rank = dist.get_rank()
    logging.basicConfig(level=logging.INFO, format=f"[{rank}] %(message)s")
    run = Run(rank)
    total = run.announce(run.fit())
    if rank == 1:
        archive(Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / "run.xz", run.model)
    dist.barrier()
    log.info("%d batches at most", total)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
