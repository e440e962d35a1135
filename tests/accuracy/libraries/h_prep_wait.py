# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = ["datasets"]
# outcome = "healthy"
# source = "https://github.com/huggingface/datasets/issues/6060"
# ///
"""Rank 0 prepares a data set with map(num_proc=2) while the others wait in a barrier, then all train on the saved copy.

Slow, but sound: the barrier is passed by everyone, and the preparation computes all the time.
"""
import logging
import shutil
import tempfile
import time
import zlib
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from datasets import Dataset, disable_progress_bars, load_from_disk

log = logging.getLogger("prep")


@dataclass
class PrepConfig:
    rows: int = 240
    work_seconds: float = 7.0
    steps: int = 20
    hidden: int = 12


def featurize(row, budget):
    end, value = time.monotonic() + budget, 0
    while time.monotonic() < end:
        value = zlib.crc32(str(value).encode())
    return {"feat": [((row["id"] * k) % 17) / 17 for k in range(1, 9)]}


def prepare(folder, cfg):
    raw = Dataset.from_dict({"id": list(range(cfg.rows))})
    ready = raw.map(featurize, fn_kwargs={"budget": 2 * cfg.work_seconds / cfg.rows}, num_proc=2)
    ready.save_to_disk(folder / "ready")


def rank_zero_first(folder, cfg):
    if dist.get_rank() == 0:
        prepare(folder, cfg)
    dist.barrier()
    return load_from_disk(folder / "ready")


class Regression:
    def __init__(self, cfg):
        torch.manual_seed(0)
        self.net = torch.nn.Sequential(torch.nn.Linear(8, cfg.hidden), torch.nn.Tanh(), torch.nn.Linear(cfg.hidden, 1))
        self.opt = torch.optim.SGD(self.net.parameters(), lr=0.05)

    def step(self, x):
        loss = (self.net(x) - x.sum(1, keepdim=True)).pow(2).mean()
        self.opt.zero_grad()
        loss.backward()
        for p in self.net.parameters():
            dist.all_reduce(p.grad)
        self.opt.step()
        return loss.item()


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    disable_progress_bars()
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    rank, world, cfg = dist.get_rank(), dist.get_world_size(), PrepConfig()
    box = [tempfile.mkdtemp(prefix="prep-") if rank == 0 else None]
    dist.broadcast_object_list(box, src=0)
    data = rank_zero_first(Path(box[0]), cfg).shard(world, rank)
    job = Regression(cfg)
    for step in range(cfg.steps):
        rows = data[(step * 4) % 40:(step * 4) % 40 + 4]["feat"]
        loss = job.step(torch.tensor(rows))
    dist.barrier()
    if rank == 0:
        log.info("done, loss %.4f", loss)
        shutil.rmtree(box[0], ignore_errors=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
