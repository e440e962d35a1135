# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# outcome = "hang"
# causes_any = ["HD103", "HD101", "HD106"]
# culprits = [3]
# lines = [62, 84, 90, 98, 108, 120, 121]
# branch = ["except StorageError", "except (OSError, ValueError)", "not available"]
# source = "https://github.com/argonne-lcf/dlio_benchmark/pull/348"
# ///
import json
import logging
import os
import tempfile
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn as nn

log = logging.getLogger("ckptbench")


class StorageError(RuntimeError):
    pass


@dataclass
class BenchConfig:
    model_dim: int = 32
    saves: int = 3
    reads: int = 2
    page: int = 4


class ObjectStore:
    """A directory that behaves like a bucket: listings come in pages with a continuation file."""

    def __init__(self, root, page):
        self.root = Path(root)
        self.page = page

    def put(self, key, obj):
        path = self.root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save(obj, path)
        self._index(path.parent)

    def _index(self, folder):
        names = sorted(p.name for p in folder.glob("*.pt"))
        body = json.dumps({"count": len(names), "keys": names})
        (folder / "index.json").write_text(body[: 20 * self.page])

    def get(self, key):
        return torch.load(self.root / key)

    def list(self, prefix):
        try:
            index = json.loads((self.root / prefix / "index.json").read_text())
        except (OSError, ValueError) as exc:
            raise StorageError(f"listing {prefix}: {exc}") from exc
        return index["keys"]


class CheckpointBench:
    def __init__(self, cfg, store, rank, world):
        self.cfg, self.store = cfg, store
        self.rank, self.world = rank, world
        self.prefix = f"ckpt/rank{rank}"
        torch.manual_seed(rank)
        self.model = nn.Linear(cfg.model_dim, cfg.model_dim)

    def write(self):
        suffix = ["", "", "", "-tied-embedding"][self.rank % 4]
        for n in range(self.cfg.saves):
            self.store.put(f"{self.prefix}/step{n:04d}{suffix}.pt", self.model.state_dict())
            dist.barrier()

    def available(self):
        try:
            return self.store.list(self.prefix)
        except StorageError as exc:
            log.warning("%s", exc)
            return []

    def restore(self):
        available = self.available()
        if not available:
            log.info("rank %d starts from scratch", self.rank)
            return None
        total = torch.zeros(1)
        for key in available[-self.cfg.reads :]:
            state = self.store.get(f"{self.prefix}/{key}")
            self.model.load_state_dict(state)
            total += sum(p.abs().sum() for p in self.model.parameters()).detach()
        dist.all_reduce(total)
        return total.item()


class Throughput:
    def __init__(self, world):
        self.world = world

    def publish(self, label, value):
        rows = [None] * self.world
        dist.all_gather_object(rows, {label: value})
        return rows


def main():
    logging.basicConfig(level=logging.INFO)
    dist.init_process_group("gloo", timeout=timedelta(hours=1))
    rank, world = dist.get_rank(), dist.get_world_size()
    cfg = BenchConfig()
    root = Path(tempfile.gettempdir()) / f"bucket_{os.environ['MASTER_PORT']}"
    bench = CheckpointBench(cfg, ObjectStore(root, cfg.page), rank, world)
    bench.write()
    checksum = bench.restore()
    rows = Throughput(world).publish("read", checksum)
    if rank == 0:
        log.info("result %s", rows)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
