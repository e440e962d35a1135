# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# outcome = "healthy"
# watch = "--give-up-after 10"
# source = "https://github.com/pytorch/pytorch/pull/60757"
# ///
"""DDP over partitions of very different size under Join; ranks write their own result files and end when they are done."""
import csv
import logging
import os
import tempfile
import time
import zlib
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("uneven")


class Partition:
    """Batches of a region; augmentation costs some computing."""

    def __init__(self, rank, sizes=(40, 90, 60, 240)):
        self.count = sizes[rank % len(sizes)]
        self.g = torch.Generator().manual_seed(rank)

    def __iter__(self):
        for _ in range(self.count):
            x = torch.randn(64, 32, generator=self.g)
            for _ in range(60):
                x = torch.roll(x, 1, 1) * 0.5 + torch.tanh(x) * 0.5
            yield x, x[:, :4].argmax(1)


def archive(model, folder, rank, seconds):
    """Compresses many noisy copies of the weights: an ensemble for later. The share grows with the rank."""
    started, rows = time.monotonic(), []
    while time.monotonic() - started < seconds:
        noisy = torch.cat([(p + 0.01 * torch.randn_like(p)).flatten() for p in model.parameters()])
        rows.append(len(zlib.compress(noisy.detach().numpy().tobytes(), 9)))
    with open(folder / f"ensemble-{rank}.csv", "w", newline="") as f:
        csv.writer(f).writerows([i, size] for i, size in enumerate(rows))
    log.info("%d members archived", len(rows))


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    logging.basicConfig(level=logging.INFO, format=f"{rank}> %(message)s")
    folder = Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / "uneven"
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 4)))
    for epoch in range(3):
        steps = 0
        with Join([model]):
            for x, y in Partition(rank):
                loss = nn.functional.cross_entropy(model(x), y)
                model.zero_grad()
                loss.backward()
                with torch.no_grad():
                    for p in model.parameters():
                        p -= 0.1 * p.grad
                steps += 1
        log.info("epoch %d: %d steps, loss %.3f", epoch, steps, loss.item())
    dist.barrier()
    plain = model.module
    del model
    dist.destroy_process_group()
    archive(plain, folder, rank, seconds=3 + 6 * rank)


if __name__ == "__main__":
    main()
