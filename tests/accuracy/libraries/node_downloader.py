# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = []
# watch = "--give-up-after 8"
# outcome = "hang"
# causes_any = ["HD507", "HD509"]
# culprits = [2]
# lines = [85, 89, 91, 99, 133, 136]
# branch = ["local.size == remote.size", "self._fresh(entry)"]
# source = "https://github.com/volcano-sh/kthena/issues/1324"
# ///
import hashlib
import json
import logging
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

logger = logging.getLogger("downloader")

COPY_TOOL = r"""
import json, os, sys
src, dst, part = sys.argv[1], sys.argv[2], int(sys.argv[3])
size = os.path.getsize(src)
done = 0
with open(src, "rb") as fin, open(dst, "wb") as fout:
    while True:
        block = fin.read(part)
        if not block:
            break
        fout.write(block)
        done += len(block)
        sys.stderr.write("WARN part %d: etag is of multipart form, checksum of the part not verified\n" % (done // part))
        if done % (part * 64) == 0:
            print("copied", done, "of", size, flush=True)
print(json.dumps({"bytes": done}), flush=True)
"""


@dataclass(frozen=True)
class Blob:
    name: str
    size: int


class Bucket:
    def __init__(self, root):
        self.root = Path(root)
        self.root.mkdir(parents=True, exist_ok=True)

    def publish(self, name, size):
        block = hashlib.sha256(name.encode()).digest()
        (self.root / name).write_bytes((block * (size // len(block) + 1))[:size])
        return Blob(name, size)

    def path(self, name):
        return str(self.root / name)


class NodeCache:
    """Local disk of a node. A former run may have left files behind."""

    def __init__(self, root, bucket):
        self.root = Path(root)
        self.root.mkdir(parents=True, exist_ok=True)
        self.bucket = bucket

    def seed(self, blob, fraction):
        data = Path(self.bucket.path(blob.name)).read_bytes()
        (self.root / blob.name).write_bytes(data[: int(len(data) * fraction)])

    def stat(self, name):
        path = self.root / name
        return Blob(name, path.stat().st_size if path.exists() else -1)

    def _fresh(self, remote):
        local = self.stat(remote.name)
        return local.size == remote.size

    def ensure(self, entries):
        for entry in entries:
            if self._fresh(entry):
                continue
            self._copy(entry)
        return [self.root / e.name for e in entries]

    def _copy(self, entry):
        cmd = [sys.executable, "-c", COPY_TOOL, self.bucket.path(entry.name), str(self.root / entry.name), "256"]
        logger.info("copying %s", entry.name)
        proc = subprocess.Popen(cmd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        while True:
            line = proc.stdout.readline()
            if line == "" and proc.poll() is not None:
                break
            if line:
                logger.info(line.strip())
        for line in proc.stderr.readlines():
            logger.warning(line.strip())
        if proc.returncode:
            raise RuntimeError(f"copy of {entry.name} failed: {proc.returncode}")


def fingerprint(paths):
    digest = hashlib.sha256()
    for p in paths:
        digest.update(p.read_bytes())
    return int.from_bytes(digest.digest()[:4], "big")


def prepare_bucket(base, rank):
    bucket = Bucket(base / "bucket" / str(rank))
    blobs = [bucket.publish(f"shard-{k:03d}.bin", 24_000 * (k + 1)) for k in range(12)]
    return bucket, blobs


def main():
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    dist.init_process_group("gloo", timeout=timedelta(hours=1))
    rank, world = dist.get_rank(), dist.get_world_size()
    base = Path(tempfile.gettempdir()) / f"nodecache_{os.environ['MASTER_PORT']}"
    bucket, blobs = prepare_bucket(base, rank)
    cache = NodeCache(base / "node" / str(rank), bucket)
    preset = json.loads('{"0": [], "1": [1], "2": [0, 10]}')[str(rank)]
    for k, blob in enumerate(blobs):
        cache.seed(blob, 0.5 if k in preset else 1.0)
    paths = cache.ensure(blobs)
    mine = torch.tensor([fingerprint(paths)])
    everyone = [torch.zeros_like(mine) for _ in range(world)]
    dist.all_gather(everyone, mine)
    logger.info("weights agree: %s", len({t.item() for t in everyone}) == 1)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
