# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 5"
# requires = []
# outcome = "hang"
# causes_any = ["HD301", "HD401"]
# culprits = [4]
# lines = [65, 67, 74, 94]
# branch = ["shards", "job is None"]
# source = "https://github.com/webdataset/webdataset/issues/188"
# ///
"""Language-identification training: every rank reads its share of the audio shards, the process group is set up once the data is known to be fine."""
import json
import logging
import os
import sys
import tempfile
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("langid")


@dataclass
class Job:
    rank: int
    world: int
    shards: list = field(default_factory=list)
    batch_size: int = 16
    epochs: int = 2


class Manifest:
    """What the packing job left behind: one entry per shard."""

    def __init__(self, root: Path, rank: int):
        self.path = root / f"manifest-{rank}.json"

    def write(self, minutes=(52, 61, 47, 58)):
        rows = [{"shard": f"vox-{i:05d}.tar", "minutes": m, "seed": i} for i, m in enumerate(minutes)]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(rows))
        return self

    def share(self, rank, world):
        rows = json.loads(self.path.read_text())
        return rows[rank::world]


def load_shard(row):
    gen = torch.Generator().manual_seed(row["seed"])
    feats = torch.randn(row["minutes"] * 2, 24, generator=gen)
    return feats, (feats[:, 0] > 0).long()


def prepare(env):
    rank, world = int(env["RANK"]), int(env["WORLD_SIZE"])
    root = Path(env.get("TMPDIR", tempfile.gettempdir())) / "langid"
    shards = Manifest(root, rank).write().share(rank, world)
    if not shards:
        log.warning("rank %d: no data for me, nothing to do", rank)
        return None
    minutes = sum(s["minutes"] for s in shards)
    log.info("rank %d: %d shards, %d minutes", rank, len(shards), minutes)
    return Job(rank, world, shards)


def train(job):
    dist.init_process_group("gloo", timeout=timedelta(minutes=20))
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(24, 32), nn.ReLU(), nn.Linear(32, 2)))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(job.epochs):
        for row in job.shards:
            feats, labels = load_shard(row)
            for i in range(0, len(feats) - job.batch_size + 1, job.batch_size):
                loss = nn.functional.cross_entropy(model(feats[i:i + job.batch_size]), labels[i:i + job.batch_size])
                opt.zero_grad()
                loss.backward()
                opt.step()
        log.info("rank %d epoch %d loss %.3f", job.rank, epoch, loss.item())
    dist.destroy_process_group()
    return 0


def main():
    logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
    job = prepare(os.environ)
    if job is None:
        return 0
    return train(job)


if __name__ == "__main__":
    sys.exit(main())
