# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "hang"
# causes_any = ["HD504"]
# culprits_any = [[0], [0, 1, 2, 3]]
# lines = [44, 47, 69]
# source = "https://github.com/modelscope/ms-swift/pull/5763"
# ///
"""A preprocessing cache guarded by a file lock. Whoever has the lock builds the index and then synchronizes inside the lock, where
the others can never come. Rank 0 is always the first to ask."""
import json
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch.distributed as dist
from filelock import FileLock


@dataclass
class CacheConfig:
    folder: Path
    shards: int = 4


class IndexBuilder:
    def __init__(self, shards):
        self.shards = shards

    def build(self):
        return {f"shard{i}": [i * 10, i * 10 + 9] for i in range(self.shards)}


class IndexCache:
    def __init__(self, cfg):
        self.cfg = cfg
        self.path, self.lock = cfg.folder / "index.json", FileLock(str(cfg.folder / "index.lock"))

    def read(self):
        return json.loads(self.path.read_text())

    def get(self):
        with self.lock:
            if not self.path.exists():
                self.path.write_text(json.dumps(IndexBuilder(self.cfg.shards).build()))
            dist.barrier()
            return self.read()


class Dataset:
    def __init__(self, index, rank):
        self.rows = range(*index[f"shard{rank}"])


def folder():
    names = [None]
    if dist.get_rank() == 0:
        names[0] = tempfile.mkdtemp(prefix="index-")
    dist.broadcast_object_list(names, src=0)
    return Path(names[0])


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    cache = IndexCache(CacheConfig(folder()))
    time.sleep(0.0 if rank == 0 else 1.0)
    data = Dataset(cache.get(), rank)
    print(rank, len(data.rows))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
