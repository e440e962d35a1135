# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["webdataset"]
# outcome = "hang"
# causes_any = ["HD505"]
# culprits = [0]
# lines = [61, 69, 94, 123, 126]
# branch = ["\"calib.json\" in sample"]
# source = "https://github.com/RadarML/red-rover/issues/23"
# ///
import json
import logging
import os
import queue
import tempfile
import threading
from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
import webdataset as wds

log = logging.getLogger("radar")


@dataclass
class StreamConfig:
    shards: int = 6
    per_shard: int = 24
    depth: int = 4
    batch: int = 8
    root: str = ""


class ShardMaker:
    def __init__(self, cfg):
        self.cfg = cfg

    def _sample(self, shard, k):
        rng = np.random.default_rng(shard * 1000 + k)
        sample = {
            "__key__": f"{shard:03d}_{k:04d}",
            "iq.npy": rng.standard_normal(12).astype(np.float32),
        }
        recalibrating = shard == 3 and 12 <= k < 14
        if not recalibrating:
            sample["calib.json"] = {"gain": 1.0 + 0.01 * k, "offset": 0.1 * shard}
        return sample

    def write(self, shards):
        for s in shards:
            with wds.TarWriter(os.path.join(self.cfg.root, f"radar-{s:03d}.tar")) as sink:
                for k in range(self.cfg.per_shard):
                    sink.write(self._sample(s, k))


def read_calibration(sample):
    if "calib.json" in sample:
        return sample["calib.json"]
    return None


def to_tensor(sample):
    calib = read_calibration(sample)
    iq = torch.from_numpy(sample["iq.npy"])
    return iq * calib["gain"] + calib["offset"]


def own_shards(urls):
    yield from urls


class Prefetch:
    """Runs an iterator in a thread, a few elements ahead of the consumer."""

    END = object()

    def __init__(self, iterable, depth):
        self.iterable = iterable
        self.queue = queue.Queue(depth)
        self.thread = threading.Thread(target=self._pump, name="prefetch", daemon=True)

    def _pump(self):
        for item in self.iterable:
            self.queue.put(item)
        self.queue.put(self.END)

    def __iter__(self):
        self.thread.start()
        while True:
            item = self.queue.get()
            if item is self.END:
                return
            yield item


def build_stream(cfg, rank, world):
    mine = [s for s in range(cfg.shards) if s % world == rank]
    ShardMaker(cfg).write(mine)
    urls = [os.path.join(cfg.root, f"radar-{s:03d}.tar") for s in mine]
    ds = wds.WebDataset(urls, shardshuffle=False, nodesplitter=own_shards, empty_check=False)
    ds = ds.decode().map(to_tensor).batched(cfg.batch, collation_fn=torch.stack)
    return Prefetch(ds, cfg.depth)


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Linear(12, 3)
        self.dec = nn.Linear(3, 12)

    def forward(self, x):
        return self.dec(torch.tanh(self.enc(x)))


def train(model, stream, rank):
    ddp = nn.parallel.DistributedDataParallel(model)
    opt = torch.optim.Adam(ddp.parameters(), lr=1e-3)
    n = 0
    for batch in stream:
        loss = (ddp(batch) - batch).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        n += 1
        if rank == 0:
            log.info("step %d loss %.4f", n, loss.item())
    return n


def main():
    logging.basicConfig(level=logging.INFO)
    dist.init_process_group("gloo", timeout=timedelta(hours=1))
    rank, world = dist.get_rank(), dist.get_world_size()
    root = os.path.join(tempfile.gettempdir(), f"radar_{os.environ['MASTER_PORT']}")
    os.makedirs(root, exist_ok=True)
    stream = build_stream(StreamConfig(root=root), rank, world)
    steps = train(Autoencoder(), stream, rank)
    log.info("finished after %d steps", steps)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
