# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["webdataset"]
# outcome = "hang"
# causes_any = ["HD102", "HD106", "HD101"]
# culprits_any = [[1], [0, 2]]
# lines = [60, 67, 84, 87, 93]
# branch = ["images, labels in loader", "sample[\"meta\"][\"quality\"] >= self.min_quality"]
# source = "https://github.com/webdataset/webdataset/issues/225"
# ///
"""Trains a toy classifier from tar shards, one node split per rank, with a quality filter on the samples."""
import argparse
import io
import json
import logging
import os
import tarfile
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
import webdataset as wds
from torch.nn.parallel import DistributedDataParallel as DDP

LOG = logging.getLogger("shards")


def write_shard(path, index, n=48):
    gen = torch.Generator().manual_seed(index)
    with tarfile.open(path, "w") as tar:
        for i in range(n):
            vec = torch.randn(8, generator=gen).tolist()
            quality = 0.2 if (index == 4 and i % 3 == 0) else 0.9
            for ext, obj in (("vec.json", vec), ("cls.json", i % 4), ("meta.json", {"quality": quality})):
                blob = json.dumps(obj).encode()
                info = tarfile.TarInfo(f"{index:03d}_{i:04d}.{ext}")
                info.size = len(blob)
                tar.addfile(info, io.BytesIO(blob))


class ShardSource:
    def __init__(self, root, count, min_quality):
        self.root = Path(root)
        self.count = count
        self.min_quality = min_quality

    @property
    def urls(self):
        return [str(self.root / f"train-{i:06d}.tar") for i in range(self.count)]

    def ensure(self, rank):
        if rank == 0:
            self.root.mkdir(parents=True, exist_ok=True)
            for i, url in enumerate(self.urls):
                write_shard(url, i)
        dist.barrier()

    def keep(self, sample):
        return sample["meta"]["quality"] >= self.min_quality

    def loader(self, batch_size):
        decode = lambda s: {k.split(".")[0]: json.loads(v) for k, v in s.items() if not k.startswith("__")}
        ds = (
            wds.WebDataset(self.urls, nodesplitter=wds.split_by_node, shardshuffle=False, empty_check=False)
            .map(decode)
            .select(self.keep)
            .map(lambda s: (torch.tensor(s["vec"]), torch.tensor(s["cls"])))
            .batched(batch_size, partial=False)
        )
        return wds.WebLoader(ds, batch_size=None, num_workers=0)


class Trainer:
    def __init__(self, args, source):
        self.args = args
        self.source = source
        self.model = DDP(torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4)))
        self.opt = torch.optim.SGD(self.model.parameters(), lr=0.05)
        self.seen = 0

    def run_epoch(self, epoch):
        loader = self.source.loader(self.args.batch_size)
        for images, labels in loader:
            loss = torch.nn.functional.cross_entropy(self.model(images), labels)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            self.seen += len(labels)
        return self.summarize(epoch, loss.detach())

    def summarize(self, epoch, loss):
        dist.barrier()
        stats = torch.tensor([float(self.seen), loss.item()])
        dist.all_reduce(stats)
        if dist.get_rank() == 0:
            LOG.info("epoch %d seen %d loss %.3f", epoch, int(stats[0]), stats[1] / dist.get_world_size())
        return stats


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--batch-size", type=int, default=8)
    p.add_argument("--shards", type=int, default=6)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO)
    dist.init_process_group("gloo")
    root = Path(tempfile.gettempdir()) / f"tars_{os.environ['MASTER_PORT']}"
    source = ShardSource(root, args.shards, min_quality=0.5)
    source.ensure(dist.get_rank())
    trainer = Trainer(args, source)
    for epoch in range(args.epochs):
        trainer.run_epoch(epoch)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
