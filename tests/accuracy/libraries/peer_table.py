# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = []
# outcome = "hang"
# causes_any = ["HD305", "HD302"]
# culprits = [0]
# culprits_any = [[0], [1, 2], [1], [2]]
# lines = [63, 80, 82, 88, 106, 107, 110, 112]
# branch = ["fresh != self.seen", "self.watch.changed()"]
# source = "https://github.com/ai-dynamo/nixl/pull/1539"
# ///
"""Expert placement through a TCPStore: ranks announce an endpoint per generation and meet."""
import hashlib
import json
import logging
import os
import tempfile
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed import PrefixStore

log = logging.getLogger("peers")


@dataclass
class Config:
    rounds: int = 12
    experts: int = 12
    replan_at: int = 5
    patience: timedelta = timedelta(hours=2)


class PlacementFile:
    """Node-local copy of the placement; an operator's tool rewrites it."""

    def __init__(self, path: Path, experts: int, world: int):
        self.path, self.experts, self.world = path, experts, world
        self.write(shift=0)

    def write(self, shift: int) -> None:
        plan = {str(e): (e + shift) % self.world for e in range(self.experts)}
        self.path.write_text(json.dumps(plan))

    def read(self) -> dict:
        return {int(k): v for k, v in json.loads(self.path.read_text()).items()}

    def digest(self) -> str:
        return hashlib.sha1(self.path.read_bytes()).hexdigest()[:10]


class PlacementWatch:
    def __init__(self, file: PlacementFile):
        self.file = file
        self.seen = file.digest()

    def changed(self) -> bool:
        fresh = self.file.digest()
        if fresh != self.seen:
            self.seen = fresh
            return True
        return False


class PeerTable:
    def __init__(self, store, rank: int, world: int, cfg: Config):
        self.store, self.rank, self.world, self.cfg = store, rank, world, cfg
        self.generation = 0

    def announce(self, plan: dict) -> None:
        mine = [e for e, owner in plan.items() if owner == self.rank]
        self.store.set(f"gen{self.generation}/{self.rank}", json.dumps({"pid": os.getpid(), "experts": mine}))

    def meet(self, tag: str) -> dict:
        keys = [f"gen{self.generation}/{r}" for r in range(self.world)]
        self.store.wait(keys, self.cfg.patience)
        table = {r: json.loads(self.store.get(k)) for r, k in enumerate(keys)}
        self._arrive(f"gen{self.generation}/{tag}")
        return table

    def _arrive(self, name: str) -> None:
        if self.store.add(f"{name}/count", 1) == self.world:
            self.store.set(f"{name}/open", "1")
        self.store.wait([f"{name}/open"], self.cfg.patience)


class Worker:
    def __init__(self, cfg: Config, folder: Path):
        self.cfg = cfg
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        store = PrefixStore("placement", dist.distributed_c10d._get_default_store())
        self.file = PlacementFile(folder / f"placement-{self.rank}.json", cfg.experts, self.world)
        self.watch = PlacementWatch(self.file)
        self.table = PeerTable(store, self.rank, self.world, cfg)

    def operator(self, n: int) -> None:
        if n == self.cfg.replan_at and os.environ.get("OPERATOR_NODE", "0") == str(self.rank):
            self.file.write(shift=1)

    def round(self, n: int) -> None:
        self.operator(n)
        if self.watch.changed():
            self.table.generation += 1
            log.info("rank %d: new placement, generation %d", self.rank, self.table.generation)
        self.table.announce(self.file.read())
        peers = self.table.meet(f"round{n}")
        load = torch.tensor([float(len(p["experts"])) for p in peers.values()])
        dist.all_reduce(load)
        time.sleep(0.05)
        if self.rank == 0:
            log.info("round %d load %s", n, load.tolist())


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    dist.init_process_group("gloo", timeout=timedelta(hours=3))
    folder = Path(tempfile.mkdtemp(prefix=f"peers-{os.environ['MASTER_PORT']}-"))
    worker = Worker(Config(), folder)
    for n in range(worker.cfg.rounds):
        worker.round(n)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
