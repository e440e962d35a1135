# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# outcome = "hang"
# causes_any = ["HD508", "HD103", "HD504"]
# culprits = [0]
# lines = [40, 42, 71, 79, 80, 81, 88, 89, 100]
# branch = ["found != expected"]
# watch = "--give-up-after 8"
# source = "https://github.com/dice-group/gerbil/issues/348"
# ///
"""Every rank copies its files from the shared mirror before the training; only two copies may run at a time, counted in the job's store."""
import hashlib
import logging
import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist

log = logging.getLogger("mirror")


CATALOGUE = (6, 40, 44, 40)   # files by rank


class DigestError(Exception):
    pass


class Slots:
    """A counting limit over all ranks, kept in the key-value store."""

    def __init__(self, store, limit: int):
        self.store, self.limit = store, limit

    def take(self):
        while self.store.add("taken", 1) > self.limit:
            self.store.add("taken", -1)
            time.sleep(0.05 + 0.02 * (os.getpid() % 5))

    def give_back(self):
        self.store.add("taken", -1)


class Mirror:
    """Remote files with their published digests; the catalogue is as old as its revision."""

    def __init__(self, folder: Path, rank: int, files: int):
        self.folder, self.rank, self.files = folder, rank, files
        self.revision = ("2019", "2024", "2024", "2024")[rank % 4]

    def content(self, number: int) -> bytes:
        gen = torch.Generator().manual_seed(1000 * self.rank + number)
        return torch.randint(0, 255, (1 << 20,), generator=gen, dtype=torch.uint8).numpy().tobytes()

    def digest(self, number: int) -> str:
        data = self.content(number)
        if self.revision == "2019" and number >= self.files - 2:
            data = data[:-1] + b"\n"
        return hashlib.sha256(data).hexdigest()


class Fetcher:
    def __init__(self, mirror: Mirror, slots: Slots):
        self.mirror, self.slots = mirror, slots

    def copy(self, number: int) -> Path:
        self.slots.take()
        target = self.mirror.folder / f"r{self.mirror.rank}-{number}.bin"
        data = self.mirror.content(number)
        for start in range(0, len(data), 1 << 16):
            with target.open("ab") as out:
                out.write(data[start:start + (1 << 16)])
                os.fsync(out.fileno())
        expected, found = self.mirror.digest(number), hashlib.sha256(target.read_bytes()).hexdigest()
        if found != expected:
            raise DigestError(f"{target.name}: {found[:8]} instead of {expected[:8]}")
        self.slots.give_back()
        return target

    def fetch_all(self):
        fetched = []
        for number in range(self.mirror.files):
            try:
                fetched.append(self.copy(number))
            except DigestError as problem:
                log.warning("skipping %s", problem)
        log.info("fetched %d of %d files", len(fetched), self.mirror.files)
        return fetched


def train(paths, steps: int) -> float:
    weight = torch.zeros(32)
    for step in range(steps):
        raw = paths[step % len(paths)].read_bytes()[:32]
        gradient = torch.frombuffer(bytearray(raw), dtype=torch.uint8).float() / 255
        dist.all_reduce(gradient)
        weight -= 0.01 * gradient
    return weight.norm().item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    logging.basicConfig(level=logging.INFO, format=f"[rank {rank}] %(message)s")
    folder = Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / "mirror"
    folder.mkdir(parents=True, exist_ok=True)
    slots = Slots(dist.PrefixStore("slots", dist.distributed_c10d._get_default_store()), limit=2)
    paths = Fetcher(Mirror(folder, rank, files=CATALOGUE[rank % 4]), slots).fetch_all()
    log.info("norm %.3f", train(paths, 30))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
