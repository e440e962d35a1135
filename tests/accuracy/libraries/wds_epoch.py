# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = ["webdataset"]
# outcome = "hang"
# causes_any = ["HD102"]
# culprits = [3]
# lines = [65, 70, 96, 100, 104]
# source = "https://github.com/webdataset/webdataset/issues/188"
# ///
"""Image classification from webdataset shards, split by node.

Epoch 0 reads 8 shards (2 for each rank). From epoch 1 on three shards of hard examples are added: 11 shards over 4 ranks,
so the last rank is through with its two while the others have a third.
"""
import logging
import os
import shutil
import tempfile
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import webdataset as wds
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("classify")


@dataclass
class Config:
    base_shards: int = 8
    hard_shards: int = 3
    hard_from_epoch: int = 1
    samples_per_shard: int = 12
    batch: int = 4
    epochs: int = 3
    features: int = 24
    classes: int = 5


def write_shards(root, prefix, count, cfg):
    rng = np.random.default_rng(len(prefix))
    for s in range(count):
        with wds.TarWriter(str(root / f"{prefix}-{s:04d}.tar")) as sink:
            for i in range(cfg.samples_per_shard):
                sink.write({"__key__": f"{prefix}{s:04d}{i:04d}", "feat.npy": rng.normal(size=cfg.features).astype("float32"),
                            "cls": int(rng.integers(cfg.classes))})


def shared_root(rank):
    box = [tempfile.mkdtemp(prefix="shards-") if rank == 0 else None]
    dist.broadcast_object_list(box, src=0)
    return Path(box[0])


class ShardedData:
    def __init__(self, root, cfg):
        self.root, self.cfg = root, cfg

    def urls(self, epoch):
        names = sorted(self.root.glob("base-*.tar"))
        if epoch >= self.cfg.hard_from_epoch:
            names += sorted(self.root.glob("hard-*.tar"))
        return [str(n) for n in names]

    def loader(self, epoch):
        pipe = wds.WebDataset(self.urls(epoch), shardshuffle=False, nodesplitter=wds.split_by_node, empty_check=False)
        return pipe.decode().to_tuple("feat.npy", "cls").batched(self.cfg.batch, partial=False)


class Meter:
    def __init__(self):
        self.total, self.count = 0.0, 0

    def add(self, value, n):
        self.total += value * n
        self.count += n

    @property
    def mean(self):
        return self.total / max(1, self.count)


class Trainer:
    def __init__(self, cfg, data):
        self.cfg, self.data = cfg, data
        net = torch.nn.Sequential(torch.nn.Linear(cfg.features, 16), torch.nn.GELU(), torch.nn.Linear(16, cfg.classes))
        self.model = DDP(net)
        self.opt = torch.optim.SGD(self.model.parameters(), lr=0.05)

    def run_epoch(self, epoch):
        meter = Meter()
        for feats, labels in self.data.loader(epoch):
            x, y = torch.as_tensor(np.asarray(feats)), torch.as_tensor(np.asarray(labels))
            loss = torch.nn.functional.cross_entropy(self.model(x), y)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            meter.add(loss.item(), len(y))
        means = [None] * dist.get_world_size()
        dist.all_gather_object(means, meter.mean)
        return sum(means) / len(means)


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    rank, cfg = dist.get_rank(), Config()
    root = shared_root(rank)
    if rank == 0:
        write_shards(root, "base", cfg.base_shards, cfg)
        write_shards(root, "hard", cfg.hard_shards, cfg)
    dist.barrier()
    trainer = Trainer(cfg, ShardedData(root, cfg))
    for epoch in range(cfg.epochs):
        mean = trainer.run_epoch(epoch)
        if rank == 0:
            log.info("epoch %d loss %.4f", epoch, mean)
    if rank == 0:
        shutil.rmtree(root, ignore_errors=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
