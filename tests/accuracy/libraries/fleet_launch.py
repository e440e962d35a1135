# /// hangdoc
# launch = "python"
# requires = ["numpy"]
# outcome = "hang"
# causes_any = ["HD301", "HD401"]
# culprits = [4]
# lines = [80, 82, 65, 54, 98, 104, 79]
# branch = ["not mine"]
# source = "https://github.com/helboukkouri/character-bert-pretraining/issues/4"
# ///
"""Launcher and worker in one file: starts a rank for each slot of the fleet, each trains on its share of the shards."""
import json
import logging
import multiprocessing as mp
import os
import socket
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

log = logging.getLogger("fleet")
FLEET = ["node-a:0", "node-a:1", "node-b:0", "node-b:1", "node-c:0"]


@dataclass(frozen=True)
class Job:
    manifest: Path
    world: int
    port: int
    epochs: int = 3


def write_dataset(folder: Path) -> Path:
    """Small parts were merged until each shard holds enough rows, as the nightly compaction does."""
    rng, rows, shards = np.random.default_rng(0), [], []
    for part in range(29):
        rows.append(rng.normal(size=(int(rng.integers(20, 60)), 8)).astype(np.float32))
        if sum(map(len, rows)) >= 240:
            name = f"shard-{len(shards):03d}.npy"
            np.save(folder / name, np.concatenate(rows))
            shards.append(name)
            rows = []
    manifest = folder / "manifest.json"
    manifest.write_text(json.dumps({"shards": shards}))
    return manifest


def my_shards(job: Job, rank: int) -> list[Path]:
    names = json.loads(job.manifest.read_text())["shards"]
    return [job.manifest.parent / name for name in names[rank :: job.world]]


class Worker:
    def __init__(self, job: Job, rank: int, shards: list[Path]):
        self.job, self.rank = job, rank
        self.rows = torch.from_numpy(np.concatenate([np.load(s) for s in shards]))
        self.weight = torch.zeros(8)

    def connect(self) -> None:
        where = f"tcp://127.0.0.1:{self.job.port}"
        dist.init_process_group("gloo", init_method=where, rank=self.rank, world_size=self.job.world)

    def train(self) -> None:
        for epoch in range(self.job.epochs):
            for batch in self.rows.split(64):
                grad = batch.T @ (batch @ self.weight - batch.sum(1)) / len(batch)
                self.weight -= 0.05 * grad
            dist.all_reduce(self.weight)
            self.weight /= self.job.world
            log.info("rank %d epoch %d: %s", self.rank, epoch, self.weight[:3].tolist())


def entry(job: Job, rank: int) -> None:
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(job.world), LOCAL_RANK=FLEET[rank].split(":")[1])
    mine = my_shards(job, rank)
    if not mine:
        log.info("%s: nothing assigned, slot stays idle", FLEET[rank])
        return
    worker = Worker(job, rank, mine)
    worker.connect()
    worker.train()
    dist.destroy_process_group()


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    folder = Path(tempfile.mkdtemp(prefix="fleet-", dir=os.environ.get("TMPDIR")))
    job = Job(write_dataset(folder), world=len(FLEET), port=free_port())
    ctx = mp.get_context("fork")
    procs = [ctx.Process(target=entry, args=(job, rank), name=slot) for rank, slot in enumerate(FLEET)]
    for proc in procs:
        proc.start()
    for proc in procs:
        proc.join()
    log.info("exit codes: %s", [p.exitcode for p in procs])


if __name__ == "__main__":
    main()
