# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = []
# outcome = "hang"
# causes_any = ["HD505", "HD501", "HD508"]
# culprits = [1]
# lines = [72, 73, 79, 80, 84, 85, 106, 108]
# branch = ["digest != entry.sha256"]
# source = "https://github.com/mosaicml/llm-foundry/pull/1795"
# ///
"""Fetch model parts from a mirror in threads while the model skeleton is built."""
import hashlib
import logging
import os
import queue
import tempfile
import threading
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

log = logging.getLogger("fetch")


@dataclass(frozen=True)
class Entry:
    name: str
    sha256: str
    owner: int


class Mirror:
    """A folder that plays the part of the object store."""

    def __init__(self, root: Path):
        self.root = root

    def publish(self, parts: int, size: int, world: int) -> list[Entry]:
        entries = []
        for n in range(parts):
            data = torch.randn(size, generator=torch.Generator().manual_seed(n)).numpy().tobytes()
            (self.root / f"part-{n}.bin").write_bytes(data)
            entries.append(Entry(f"part-{n}.bin", hashlib.sha256(data).hexdigest(), n % world))
        short = self.root / f"part-{parts - 2}.bin"
        short.write_bytes(short.read_bytes()[:-512])
        return entries

    def read(self, name: str) -> bytes:
        return (self.root / name).read_bytes()


class Downloader:
    def __init__(self, mirror: Mirror, entries: list[Entry], threads: int = 2):
        self.mirror = mirror
        self.todo: queue.Queue = queue.Queue()
        self.status: queue.Queue = queue.Queue()
        for e in entries:
            self.todo.put(e)
        self.expected = len(entries)
        self.pool = [threading.Thread(target=self._work, name=f"fetch-{n}", daemon=True) for n in range(threads)]

    def start(self) -> "Downloader":
        for t in self.pool:
            t.start()
        return self

    def _check(self, entry: Entry, data: bytes) -> bytes:
        digest = hashlib.sha256(data).hexdigest()
        if digest != entry.sha256:
            raise IOError(f"{entry.name}: checksum {digest[:8]} is not {entry.sha256[:8]}")
        return data

    def _work(self) -> None:
        while True:
            entry = self.todo.get()
            data = self._check(entry, self.mirror.read(entry.name))
            self.status.put((entry.name, data))

    def results(self) -> dict:
        done = {}
        while len(done) < self.expected:
            name, data = self.status.get()
            done[name] = data
            log.info("rank %d has %s", dist.get_rank(), name)
        return done


class Model(torch.nn.Module):
    def __init__(self, parts: int, size: int):
        super().__init__()
        self.parts = torch.nn.ParameterList(torch.nn.Parameter(torch.zeros(size)) for _ in range(parts))

    def fill(self, raw: dict) -> None:
        for name, data in raw.items():
            n = int(name.split("-")[1].split(".")[0])
            self.parts[n].data.copy_(torch.frombuffer(bytearray(data), dtype=torch.float32))


def load(model: Model, mirror: Mirror, entries: list[Entry]) -> None:
    rank = dist.get_rank()
    mine = [e for e in entries if e.owner == rank]
    loader = Downloader(mirror, mine).start()
    model.fill(loader.results())
    for e, p in zip(entries, model.parts):
        dist.broadcast(p.data, src=e.owner)


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    dist.init_process_group("gloo", timeout=timedelta(hours=2))
    parts, size = 9, 4096
    box = [None, None]
    if dist.get_rank() == 0:
        root = Path(tempfile.mkdtemp(prefix=f"mirror-{os.environ['MASTER_PORT']}-"))
        box = [str(root), Mirror(root).publish(parts, size, dist.get_world_size())]
    dist.broadcast_object_list(box, src=0)
    model = Model(parts, size)
    load(model, Mirror(Path(box[0])), box[1])
    log.info("rank %d: loaded, norm %.2f", dist.get_rank(), sum(p.norm().item() for p in model.parts))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
