# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["filelock"]
# outcome = "hang"
# causes_any = ["HD504", "HD507", "HD508"]
# culprits_any = [[1], [0, 2]]
# lines = [59, 60, 61, 91, 99]
# branch = ["len(rows) > self.inline_rows"]
# source = "https://github.com/tox-dev/filelock/issues/404"
# ///
import json
import logging
import os
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, asdict
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from filelock import FileLock

log = logging.getLogger("manifest")


@dataclass
class Row:
    shard: int
    offset: int
    length: int


class ManifestWriter:
    """Appends rows to a manifest that all processes share."""

    def __init__(self, path, inline_rows=64):
        self.path = Path(path)
        self.lock = FileLock(str(path) + ".lock")
        self.inline_rows = inline_rows
        self.pool = ThreadPoolExecutor(1, thread_name_prefix="manifest")
        self.jobs = []

    def _append(self, rows):
        with self.path.open("a") as fh:
            for row in rows:
                fh.write(json.dumps(asdict(row)) + "\n")
            fh.flush()
            os.fsync(fh.fileno())

    def _append_and_release(self, rows):
        try:
            self._append(rows)
        finally:
            self.lock.release()

    def add(self, rows):
        self.lock.acquire()
        if len(rows) > self.inline_rows:
            self.jobs.append(self.pool.submit(self._append_and_release, rows))
        else:
            self._append_and_release(rows)

    def drain(self):
        for job in self.jobs:
            job.result()
        self.jobs.clear()


class Indexer:
    def __init__(self, rank, world, writer):
        self.rank, self.world = rank, world
        self.writer = writer

    def scan(self, part):
        docs = [17, 12, 30] if self.rank != 1 else [21, 95, 14]
        rows, offset = [], 0
        count = docs[part % len(docs)]
        time.sleep(7.0 / count)
        for k in range(count):
            length = 100 + (k * 37 + part * 11) % 400
            rows.append(Row(part * self.world + self.rank, offset, length))
            offset += length
        return rows

    def run(self, parts):
        total = 0
        for part in range(parts):
            rows = self.scan(part)
            self.writer.add(rows)
            total += len(rows)
            self.checkpoint(part, total)
        self.writer.drain()
        return total

    def checkpoint(self, part, total):
        t = torch.tensor([total])
        dist.all_reduce(t)
        if self.rank == 0:
            log.info("part %d: %d rows in all", part, t.item())
        time.sleep(0.1)


def main():
    logging.basicConfig(level=logging.INFO)
    logging.getLogger("filelock").setLevel(logging.WARNING)
    dist.init_process_group("gloo", timeout=timedelta(hours=1))
    rank, world = dist.get_rank(), dist.get_world_size()
    root = Path(tempfile.gettempdir()) / f"manifest_{os.environ['MASTER_PORT']}"
    root.mkdir(exist_ok=True)
    dist.barrier()
    writer = ManifestWriter(root / "index.jsonl")
    indexer = Indexer(rank, world, writer)
    total = indexer.run(parts=9)
    log.info("rank %d indexed %d", rank, total)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
