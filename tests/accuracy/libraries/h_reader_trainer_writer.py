# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# outcome = "healthy"
# causes_any = []
# culprits = []
# lines = []
# watch = "--give-up-after 10"
# source = "constructed"
# ///
"""A reader, two trainers and a writer: the reader feeds the trainers and leaves early, the writer packs the results for a while after everybody else has finished."""
import logging
import lzma
import os
import tempfile
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

log = logging.getLogger("roles")
READER, WRITER = 0, 3
TRAINERS = (1, 2)
ITEMS = 12


class Reader:
    """Sends samples to whichever trainer is next in turn; an empty header ends a trainer's stream."""

    def run(self):
        for number in range(ITEMS):
            target = TRAINERS[number % len(TRAINERS)]
            rows = 8 + 3 * (number % 5)
            dist.send(torch.tensor([rows]), target)
            dist.send(torch.randn(rows, 64, generator=torch.Generator().manual_seed(number)), target)
        for target in TRAINERS:
            dist.send(torch.tensor([0]), target)
        log.info("reader leaves")


class Trainer:
    def __init__(self, group, seconds_per_item: float = 1.2):
        self.group, self.seconds = group, seconds_per_item
        self.weight = torch.eye(64)

    def consume(self, batch: torch.Tensor):
        end = time.monotonic() + self.seconds
        while time.monotonic() < end:
            hidden = torch.tanh(batch @ self.weight)
            self.weight -= 1e-4 * hidden.T @ hidden / len(batch)

    def run(self):
        while True:
            header = torch.zeros(1, dtype=torch.int64)
            dist.recv(header, READER)
            if not header.item():
                break
            batch = torch.zeros(int(header), 64)
            dist.recv(batch, READER)
            self.consume(batch)
        dist.all_reduce(self.weight, group=self.group)
        if dist.get_rank() == TRAINERS[0]:
            dist.send(self.weight, WRITER)
        log.info("trainer leaves")


class Writer:
    """Waits for the trained weights, then packs them with their history; says in the store when all is on disk."""

    def __init__(self, folder: Path, store):
        self.folder, self.store = folder, store

    def run(self):
        weight = torch.zeros(64, 64)
        dist.recv(weight, TRAINERS[0])
        history, end, part = os.urandom(1 << 19), time.monotonic() + 14, 0
        while time.monotonic() < end:
            packed = lzma.compress(weight.numpy().tobytes() + history)
            (self.folder / f"pack-{part}.xz").write_bytes(packed)
            part += 1
        self.store.set("packed", str(part))
        log.info("writer leaves after %d parts", part)


def audit(store) -> int:
    """The second trainer stays to check that the packing came to an end."""
    while not store.check(["packed"]):
        time.sleep(0.25)
    return int(store.get("packed"))


def main():
    dist.init_process_group("gloo", timeout=timedelta(minutes=10))
    rank = dist.get_rank()
    logging.basicConfig(level=logging.INFO, format=f"[rank {rank}] %(message)s")
    folder = Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / "packs"
    folder.mkdir(parents=True, exist_ok=True)
    group = dist.new_group(list(TRAINERS))
    store = dist.PrefixStore("roles", dist.distributed_c10d._get_default_store())
    if rank == READER:
        Reader().run()
    elif rank == WRITER:
        Writer(folder, store).run()
    else:
        Trainer(group).run()
        if rank == TRAINERS[-1]:
            log.info("%d parts on disk", audit(store))


if __name__ == "__main__":
    main()
