# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = ["webdataset"]
# outcome = "hang"
# causes_any = ["HD102", "HD109"]
# culprits = [2]
# lines = [93, 96, 106, 71]
# branch = ["loader", "self.floor"]
# source = "https://github.com/webdataset/webdataset/issues/225"
# ///
"""Trains a small caption-feature classifier with DDP from WebDataset shards that are filtered by an aesthetic score."""
import io
import logging
import os
import random
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import webdataset as wds
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("captions")
SOURCES = ["flickr", "stock", "scans", "renders"]


@dataclass
class Config:
    dim: int = 32
    classes: int = 5
    batch_size: int = 8
    samples_per_shard: int = 64
    shards: int = 8
    min_aesthetic: float = 4.5
    epochs: int = 3


class ShardFactory:
    """Packs raw feature vectors of several image sources into tar shards."""

    def __init__(self, root: Path, cfg: Config):
        self.root, self.cfg = root, cfg

    def urls(self):
        return [str(self.root / f"{SOURCES[i % len(SOURCES)]}-{i:04d}.tar") for i in range(self.cfg.shards)]

    def build(self):
        self.root.mkdir(parents=True, exist_ok=True)
        for i, url in enumerate(self.urls()):
            rng = np.random.default_rng(i)
            scanned = SOURCES[i % len(SOURCES)] == "scans"
            with wds.TarWriter(url) as sink:
                for k in range(self.cfg.samples_per_shard):
                    buf = io.BytesIO()
                    np.save(buf, rng.normal(size=self.cfg.dim).astype("float32"))
                    score = rng.uniform(4.0, 9.0) if scanned and k % 4 == 0 else rng.uniform(5.0, 9.0)
                    sink.write({"__key__": f"{i:04d}{k:05d}", "feat.npy": buf.getvalue(),
                                "cls": str(int(rng.integers(self.cfg.classes))),
                                "aesthetic.txt": f"{score:.2f}"})


class QualityGate:
    def __init__(self, floor: float):
        self.floor = floor

    def __call__(self, sample) -> bool:
        return float(sample["aesthetic.txt"]) >= self.floor


def make_loader(urls, cfg):
    stream = (wds.WebDataset(urls, nodesplitter=wds.split_by_node, shardshuffle=False, empty_check=False)
              .decode()
              .select(QualityGate(cfg.min_aesthetic))
              .to_tuple("feat.npy", "cls")
              .batched(cfg.batch_size, partial=False))
    return wds.WebLoader(stream, batch_size=None, num_workers=0)


class Trainer:
    def __init__(self, cfg, loader):
        self.cfg, self.loader = cfg, loader
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(cfg.dim, 64), nn.GELU(), nn.Linear(64, cfg.classes))
        self.model = DDP(net)
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=1e-3)

    def run_epoch(self, epoch):
        seen, total = 0, 0.0
        for step, (feats, labels) in enumerate(self.loader):
            loss = nn.functional.cross_entropy(self.model(torch.as_tensor(feats)), torch.as_tensor(labels))
            self.opt.zero_grad(set_to_none=True)
            loss.backward()
            self.opt.step()
            seen += len(labels)
            total += loss.item()
            if step % 5 == 0:
                log.info("epoch %d step %d loss %.3f", epoch, step, loss.item())
        self.summarize({"epoch": epoch, "seen": seen, "loss": total})

    def summarize(self, mine):
        rows = [None] * dist.get_world_size()
        dist.all_gather_object(rows, mine)
        if dist.get_rank() == 0:
            log.info("epoch %d: %d samples", mine["epoch"], sum(r["seen"] for r in rows))


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    logging.basicConfig(level=logging.INFO, format=f"[{rank}] %(message)s")
    random.seed(0)
    cfg = Config()
    factory = ShardFactory(Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / "caption-shards", cfg)
    if rank == 0:
        factory.build()
    dist.barrier()
    trainer = Trainer(cfg, make_loader(factory.urls(), cfg))
    for epoch in range(cfg.epochs):
        trainer.run_epoch(epoch)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
