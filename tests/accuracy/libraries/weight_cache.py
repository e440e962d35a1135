# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# outcome = "hang"
# causes_any = ["HD106", "HD101"]
# culprits = [1]
# lines = [33, 40, 56, 60, 67, 68, 70, 102]
# branch = ["cached is not None", "name in self.entries", "self.held + size > self.capacity", "self.held + size >"]
# source = "https://github.com/NVIDIA/TensorRT-LLM/pull/16054"
# ///
"""Evaluation service that switches between fine-tuned checkpoints; every rank keeps recently read raw weights in a cache of limited size."""
import logging
import os
import tempfile
from collections import OrderedDict
from pathlib import Path

import torch
import torch.distributed as dist

log = logging.getLogger("loader")
PLAYLIST = ("base", "math", "base", "law", "base", "math", "law", "base", "math")


class WeightCache:
    """Least recently used weights leave first when the limit in bytes would be passed."""

    def __init__(self, capacity):
        self.capacity, self.held = capacity, 0
        self.entries = OrderedDict()

    def get(self, name):
        if name in self.entries:
            self.entries.move_to_end(name)
            return self.entries[name]
        return None

    def put(self, name, weights):
        size = sum(w.numel() * w.element_size() for w in weights.values())
        while self.entries and self.held + size > self.capacity:
            _, old = self.entries.popitem(last=False)
            self.held -= sum(w.numel() * w.element_size() for w in old.values())
        if size <= self.capacity:
            self.entries[name] = weights
            self.held += size


class WeightLoader:
    def __init__(self, root, share, cache_bytes):
        self.root, self.share = root, share
        self.cache = WeightCache(cache_bytes)
        self.reads = 0

    def host_memory_left(self):
        free = torch.tensor([float(os.sysconf("SC_AVPHYS_PAGES")) * os.sysconf("SC_PAGE_SIZE")], dtype=torch.float64)
        dist.all_reduce(free, op=dist.ReduceOp.MIN)
        return free.item()

    def read(self, name):
        enough = self.host_memory_left() > 64 * 2 ** 20
        weights = torch.load(self.root / f"{name}-{self.share}.pt", mmap=not enough, weights_only=True)
        self.reads += 1
        return weights

    def load(self, name):
        cached = self.cache.get(name)
        if cached is not None:
            dist.barrier()
            return cached
        weights = self.read(name)
        dist.barrier()
        self.cache.put(name, weights)
        return weights


class ShardedClassifier:
    """Each rank holds some experts; their votes are summed."""

    def __init__(self, weights):
        self.experts = [weights[k] for k in sorted(weights)]

    def votes(self, x):
        out = torch.zeros(len(x), 8)
        for expert in self.experts:
            out += torch.softmax(x @ expert[:, :8], dim=1)
        dist.all_reduce(out)
        return out


def export_checkpoints(root, share, world):
    """Experts are placed by popularity: the first shares of a split hold few wide ones, the rest many small ones."""
    for number, name in enumerate(sorted(set(PLAYLIST))):
        gen = torch.Generator().manual_seed(number * world + share)
        experts = {"base": (3, 3, 3, 3), "math": (3, 4, 3, 2), "law": (3, 5, 3, 4)}[name][share % 4]
        torch.save({f"expert.{e}": torch.randn(64, 64, generator=gen) for e in range(experts)},
                   root / f"{name}-{share}.pt")


def evaluate(loader, rank):
    gen = torch.Generator().manual_seed(3)
    for turn, name in enumerate(PLAYLIST):
        model = ShardedClassifier(loader.load(name))
        x = torch.randn(128, 64, generator=gen)
        best = model.votes(x).argmax(dim=1)
        if rank == 0:
            log.info("turn %d %s classes %s", turn, name, torch.bincount(best, minlength=8).tolist())


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    logging.basicConfig(level=logging.INFO, format=f"[{rank}] %(message)s")
    root = Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / f"weights-{os.environ['MASTER_PORT']}"
    root.mkdir(parents=True, exist_ok=True)
    export_checkpoints(root, rank, world)
    dist.barrier()
    loader = WeightLoader(root, rank, cache_bytes=10 * 64 * 64 * 4)
    evaluate(loader, rank)
    log.info("%d reads", loader.reads)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
