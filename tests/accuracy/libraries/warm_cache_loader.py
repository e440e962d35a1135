# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["numpy"]
# outcome = "hang"
# causes_any = ["HD503", "HD505"]
# culprits = [1]
# lines = [69, 53, 65, 104, 54, 55]
# source = "https://github.com/meta-pytorch/data/issues/1169"
# ///
"""Data-parallel training on compressed shards that a background thread unpacks into a local cache ahead of the loader."""
import hashlib
import logging
import os
import tempfile
import threading
import zlib
from pathlib import Path

import numpy as np
from numpy.random import default_rng
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

log = logging.getLogger("warm")
SHARDS, ROWS, DIM, HOSTS = 6, 96, 20, ("gpu07", "gpu31", "gpu08")


class ShardCache:
    """Unpacked shards of this host. One lock guards the folder and the index."""

    def __init__(self, folder: Path, shards: list[int]):
        self.folder, self.shards = folder, shards
        self.lock = threading.Lock()
        self.index: dict[int, Path] = {}
        folder.mkdir(parents=True, exist_ok=True)

    def _path(self, shard: int) -> Path:
        return self.folder / f"{shard:04d}.npy"

    @staticmethod
    def _unpack(shard: int) -> np.ndarray:
        rng = default_rng(shard)
        raw = rng.integers(0, 50, size=6_000_000, dtype=np.uint8).tobytes()
        for _ in range(4):  # the archive's passes, with a checksum in between
            raw_z = zlib.compress(raw, 6)
            raw = zlib.decompress(raw_z)
            hashlib.sha256(raw).digest()
        return np.frombuffer(raw, np.uint8)[: ROWS * DIM].reshape(ROWS, DIM).astype(np.float32)

    def fill(self, shard: int) -> None:
        path = self._path(shard)
        with self.lock:
            if not path.exists():
                np.save(path, self._unpack(shard))
            self.index[shard] = path

    def warm(self) -> threading.Thread:
        def work():
            for shard in self.shards:
                self.fill(shard)
            log.info("rank %s: cache is warm", os.environ["RANK"])

        thread = threading.Thread(target=work, name="cache-warmer", daemon=True)
        thread.start()
        return thread

    def rows(self, shard: int) -> np.ndarray:
        with self.lock:
            path = self.index.get(shard) or self._path(shard)
            if path.exists():
                return np.load(path)
        self.fill(shard)
        return np.load(self._path(shard))


class ShardRows(Dataset):
    def __init__(self, cache: ShardCache):
        self.cache = cache

    def __len__(self):
        return len(self.cache.shards) * ROWS

    def __getitem__(self, i):
        row = self.cache.rows(self.cache.shards[i // ROWS])[i % ROWS]
        return torch.from_numpy(row)


def host_folder(rank: int) -> Path:
    root = Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / f"host{rank}"
    folder = root / "shards"
    folder.mkdir(parents=True, exist_ok=True)
    if HOSTS[rank] < "gpu30":  # the older racks come with the volume of an earlier job
        for shard in range(SHARDS):
            rng = default_rng(shard)
            np.save(folder / f"{shard:04d}.npy", rng.integers(0, 50, size=(ROWS, DIM)).astype(np.float32))
    return folder


def train(cache: ShardCache) -> None:
    weight, rank = torch.zeros(DIM), dist.get_rank()
    warmer = cache.warm()
    loader = DataLoader(ShardRows(cache), batch_size=32, num_workers=1)
    for step, batch in enumerate(loader):
        grad = (batch @ weight - batch.mean(1)) @ batch / len(batch)
        dist.all_reduce(grad)
        weight -= 1e-5 * grad
        if step % 6 == 0:
            log.info("rank %d step %d", rank, step)
    warmer.join()


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    dist.init_process_group("gloo")
    cache = ShardCache(host_folder(dist.get_rank()), list(range(SHARDS)))
    train(cache)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
