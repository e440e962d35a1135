# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# outcome = "hang"
# causes_any = ["HD504"]
# culprits = [1]
# lines = [54, 58, 68, 92, 94, 95, 102, 103, 124]
# branch = ["part.packed"]
# source = "https://github.com/zopefoundation/zc.lockfile/pull/8"
# ///
"""Stages the parts of a data set on the node's scratch disk, one rank at a time, then trains on them."""
import fcntl
import hashlib
import logging
import multiprocessing
import os
import socket
import tempfile
import zlib
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist

log = logging.getLogger("staging")
PARTS = ("raw", "deflate", "raw", "raw")


@dataclass
class Part:
    number: int
    encoding: str

    @property
    def packed(self) -> bool:
        return self.encoding != "raw"

    def content(self) -> bytes:
        gen = torch.Generator().manual_seed(self.number)
        data = torch.randint(0, 255, (1 << 20,), generator=gen, dtype=torch.uint8).numpy().tobytes()
        return zlib.compress(data, 1) if self.packed else data


class ScratchLock:
    """Only one process of the node writes to the scratch disk at a time."""

    def __init__(self, path: Path):
        self.path = path
        self._file = None

    def __enter__(self):
        self._file = open(self.path, "a")
        fcntl.flock(self._file, fcntl.LOCK_EX)
        return self

    def __exit__(self, *failure):
        self._file.close()
        self._file = None


def unpack_service(address: str):
    """Unpacks pages on demand for as long as the training lasts."""
    server = socket.socket(socket.AF_UNIX)
    server.bind(address)
    server.listen(4)
    while True:
        conn, _ = server.accept()
        with conn, conn.makefile("rwb") as stream:
            path = stream.readline().decode().strip()
            pages = zlib.decompress(Path(path).read_bytes())
            stream.write(hashlib.sha1(pages).hexdigest().encode() + b"\n")


class Stager:
    def __init__(self, scratch: Path, part: Part):
        self.scratch, self.part = scratch, part
        self.lock = ScratchLock(scratch / ".lock")
        self.service = None

    def fingerprint(self, data: bytes) -> str:
        digest = hashlib.sha256()
        for _ in range(200):
            digest.update(data)
        return digest.hexdigest()

    def stage(self) -> Path:
        data = self.part.content()
        target = self.scratch / f"part-{self.part.number}.{self.part.encoding}"
        if not self.part.packed:
            log.info("part %d has digest %s", self.part.number, self.fingerprint(data)[:12])
        with self.lock:
            target.write_bytes(data)
            if self.part.packed:
                self.start_service()
        log.info("staged %s (%d bytes)", target.name, len(data))
        return target

    def start_service(self):
        address = str(self.scratch / f"u{self.part.number}.sock")
        context = multiprocessing.get_context("fork")
        self.service = context.Process(target=unpack_service, args=(address,), daemon=True)
        self.service.start()


def train(path: Path, steps: int):
    weight = torch.zeros(64)
    for step in range(steps):
        gradient = torch.full((64,), float(path.stat().st_size % (step + 7)))
        dist.all_reduce(gradient)
        weight -= 0.01 * gradient
    return weight.norm().item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    logging.basicConfig(level=logging.INFO, format=f"[rank {rank}] %(message)s")
    scratch = Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / "scratch"
    scratch.mkdir(parents=True, exist_ok=True)
    dist.barrier()
    part = Part(rank, PARTS[rank % len(PARTS)])
    path = Stager(scratch, part).stage()
    dist.barrier()
    log.info("norm %.3f", train(path, 50))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
