# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = []
# outcome = "hang"
# causes_any = ["HD503", "HD505"]
# culprits = [1]
# lines = [46, 54, 55, 62, 89, 115]
# source = "https://github.com/huggingface/datasets/issues/5094"
# ///
"""Fits a line per rank with a DataLoader over cached samples; a cold cache is warmed by a thread in the background."""
import hashlib
import logging
import os
import pathlib
import tempfile
import threading

import numpy as np
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

log = logging.getLogger("warm")


class SampleCache:
    """Decoded samples by key, in memory, shared by whoever needs them."""

    def __init__(self, folder, keys):
        self.folder = pathlib.Path(folder)
        self.keys = keys
        self.lock = threading.Lock()
        self.started = threading.Event()
        self.samples = {}

    def cold(self):
        return not (self.folder / "decoded.npz").exists()

    def decode(self, key):
        digest = hashlib.sha512(key.encode()).digest()
        for _ in range(60_000):
            digest = hashlib.sha512(digest).digest()
        return np.frombuffer(digest, dtype=np.uint8).astype("float32") / 255

    def warm(self):
        with self.lock:
            self.started.set()
            for key in self.keys:
                self.samples[key] = self.decode(key)
        np.savez(self.folder / "decoded.npz", **self.samples)
        log.info("cache in %s is warm", self.folder.name)

    def open(self):
        if self.cold():
            threading.Thread(target=self.warm, name="cache-warmer", daemon=True).start()
            self.started.wait()
        else:
            with np.load(self.folder / "decoded.npz") as stored:
                self.samples = dict(stored)

    def get(self, key):
        with self.lock:
            if key not in self.samples:
                self.samples[key] = self.decode(key)
            return self.samples[key]


class Samples(Dataset):
    def __init__(self, cache):
        self.cache = cache

    def __len__(self):
        return len(self.cache.keys)

    def __getitem__(self, index):
        x = torch.from_numpy(self.cache.get(self.cache.keys[index]).copy())
        return x, x.mean().unsqueeze(0)


def provide_decoded(folder, keys):
    """What the image of this host ships: the decoded samples of the shards that were packed last week."""
    cache = SampleCache(folder, keys)
    np.savez(cache.folder / "decoded.npz", **{k: np.full(64, i / 99, "float32") for i, k in enumerate(keys)})


def fit(model, loader, epochs):
    for epoch in range(epochs):
        total = torch.zeros(())
        for batch in loader:
            x, y = batch
            loss = (model(x) - y).pow(2).mean()
            model.zero_grad()
            loss.backward()
            with torch.no_grad():
                for p in model.parameters():
                    p -= 0.05 * p.grad
            total += loss.detach()
        dist.all_reduce(total)
        if dist.get_rank() == 0:
            log.info("epoch %d loss %.4f", epoch, total.item())


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    shard = ("packed-01", "fresh-02", "packed-03")[rank % 3]
    folder = pathlib.Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / f"samples-{os.getppid()}" / shard
    folder.mkdir(parents=True, exist_ok=True)
    keys = [f"{shard}-{i:04d}" for i in range(96)]
    if shard.startswith("packed"):
        provide_decoded(folder, keys)
    cache = SampleCache(folder, keys)
    cache.open()
    loader = DataLoader(Samples(cache), batch_size=16, num_workers=2)
    fit(torch.nn.Linear(64, 1), loader, epochs=3)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
