# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = ["filelock"]
# outcome = "hang"
# causes_any = ["HD504"]
# culprits = [2]
# lines = [49, 50, 52, 61, 98, 99]
# watch = "--give-up-after 8"
# source = "https://github.com/mosaicml/composer/pull/2184"
# ///
"""Every rank prepares one asset of a bundle under its lock; then each rank loads the asset of its right neighbour."""
import hashlib
import json
import logging
import os
import pathlib
import random
import tempfile

import filelock
import torch
import torch.distributed as dist

log = logging.getLogger("assets")
BUNDLE = ["vocab", "merges", "stopwords", "gazetteer"]
SHIPPED = {"stopwords": ["the", "a", "of", "and", "to", "in"]}


class AssetCache:
    """Assets as JSON files below one directory, each guarded by a lock file of its own."""

    def __init__(self, root):
        self.root = pathlib.Path(root)
        self.root.mkdir(parents=True, exist_ok=True)
        self.locks = {}

    def lock_of(self, name):
        if name not in self.locks:
            self.locks[name] = filelock.FileLock(str(self.root / f".{name}.lock"))
        return self.locks[name]

    def unpack_shipped(self):
        for name, words in SHIPPED.items():
            (self.root / f"{name}.json").write_text(json.dumps(words))

    def prepare(self, name):
        blob = self.root / f"{name}.json"
        lock = self.lock_of(name)
        lock.acquire()
        if blob.exists():
            log.info("asset %s is there already", name)
            return json.loads(blob.read_text())
        words = self.compute(name)
        partial = blob.with_suffix(".part")
        partial.write_text(json.dumps(words))
        partial.rename(blob)
        lock.release()
        return words

    def load(self, name):
        with self.lock_of(name):
            return json.loads((self.root / f"{name}.json").read_text())

    @staticmethod
    def compute(name):
        rng = random.Random(name)
        words = {hashlib.sha256(f"{name}{rng.random()}".encode()).hexdigest()[:8] for _ in range(20000)}
        return sorted(words)[:500]


class Loader:
    def __init__(self, cache, rank, world):
        self.cache, self.rank, self.world = cache, rank, world

    def own(self):
        return BUNDLE[self.rank % len(BUNDLE)]

    def neighbour(self):
        return BUNDLE[(self.rank + 1) % self.world % len(BUNDLE)]

    def run(self):
        mine = self.cache.prepare(self.own())
        log.info("rank %d prepared %s (%d entries)", self.rank, self.own(), len(mine))
        dist.barrier()
        other = self.cache.load(self.neighbour())
        return len(mine), len(other)


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    base = os.environ.get("TMPDIR", tempfile.gettempdir())
    cache = AssetCache(os.path.join(base, f"assets-{os.getppid()}"))
    if rank == 0:
        cache.unpack_shipped()
    dist.barrier()
    sizes = torch.tensor(Loader(cache, rank, world).run())
    dist.all_reduce(sizes)
    if rank == 0:
        log.info("entries prepared and loaded: %s", sizes.tolist())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
