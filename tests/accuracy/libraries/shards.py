# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["webdataset"]
# outcome = "hang"
# causes_any = ["HD102", "HD101", "HD106"]
# culprits_any = [[0], [1, 2]]
# lines = [73, 87]
# branch = ["x, y in self.loader", "self.loader"]
# source = "https://github.com/webdataset/webdataset/issues/65"
# ///
"""Image classifier fed from tar shards through webdataset; statistics are reduced at the end of every pass."""
import io
import logging
import os
import tarfile
import tempfile
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import webdataset as wds
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("wds-train")
SHARDS = 7
PER_SHARD = 24


def write_shards(root: Path):
    g = torch.Generator().manual_seed(1)
    for s in range(SHARDS):
        with tarfile.open(root / f"train-{s:04d}.tar", "w") as tar:
            for i in range(PER_SHARD):
                x = torch.randn(16, generator=g)
                payload = {"x.pth": x, "y.pth": (x[:4].sum() > 0).long()}
                for ext, value in payload.items():
                    buf = io.BytesIO()
                    torch.save(value, buf)
                    info = tarfile.TarInfo(f"{s:04d}{i:05d}.{ext}")
                    info.size = buf.tell()
                    buf.seek(0)
                    tar.addfile(info, buf)


def shard_root(rank):
    box = [tempfile.mkdtemp(prefix="wds_%s_" % os.environ["MASTER_PORT"]) if rank == 0 else None]
    dist.broadcast_object_list(box, src=0)
    if rank == 0:
        write_shards(Path(box[0]))
    dist.barrier()
    return box[0]


def build_loader(root, batch_size, workers=0):
    urls = sorted(str(p) for p in Path(root).glob("train-*.tar"))
    ds = (wds.WebDataset(urls, nodesplitter=wds.split_by_node, shardshuffle=False)
          .decode()
          .to_tuple("x.pth", "y.pth")
          .batched(batch_size, partial=False))
    return wds.WebLoader(ds, batch_size=None, num_workers=workers)


class Pass:
    def __init__(self):
        self.sums = torch.zeros(3)

    def add(self, loss, hits, n):
        self.sums += torch.tensor([loss * n, hits, n])

    def reduced(self):
        dist.barrier()
        dist.all_reduce(self.sums)
        return (self.sums[:2] / self.sums[2]).tolist()


class Learner:
    def __init__(self, loader):
        torch.manual_seed(0)
        self.net = DDP(nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2)))
        self.opt = torch.optim.SGD(self.net.parameters(), 0.1)
        self.loader = loader

    def one_pass(self):
        stats = Pass()
        for x, y in self.loader:
            out = self.net(x)
            loss = nn.functional.cross_entropy(out, y)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            stats.add(loss.item(), (out.argmax(-1) == y).sum().item(), len(y))
        return stats.reduced()


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(hours=1))
    root = shard_root(dist.get_rank())
    learner = Learner(build_loader(root, batch_size=6))
    for epoch in range(3):
        loss, acc = learner.one_pass()
        log.info("pass %d loss %.4f acc %.3f", epoch, loss, acc)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
