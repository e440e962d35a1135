# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = []
# outcome = "hang"
# watch = "--give-up-after 8"
# causes_any = ["HD503", "HD505"]
# culprits = [0]
# lines = [40, 46, 52, 85, 103, 127, 132]
# source = "https://github.com/NVIDIA/Megatron-Energon/pull/252"
# ///
"""Image training with a usage ledger: samples are counted per source, one rank writes the ledger to disk in the background while all train."""
import logging
import os
import tempfile
import threading
import zlib
from collections import Counter
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset, DistributedSampler

log = logging.getLogger("ledger-train")


class UsageLedger:
    """Counts what was read, keeps a compressed journal of it."""

    def __init__(self, sink=None):
        self.sink = sink
        self.counts = Counter()
        self._mutex = threading.Lock()
        self._stop = threading.Event()
        self._begun = threading.Event()
        self._thread = None

    def start(self):
        if self.sink is not None:
            self._thread = threading.Thread(target=self._flusher, name="ledger", daemon=True)
            self._thread.start()
            self._begun.wait()

    def note(self, source, n=1):
        with self._mutex:
            self.counts[source] += n

    def _compact(self):
        """Folds the journals that earlier runs left behind into one file."""
        packer = zlib.compressobj(9)
        with self._mutex:
            self._begun.set()
            with open(self.sink, "wb") as f:
                for part in sorted(self.sink.parent.glob("journal-*.bin")):
                    f.write(packer.compress(part.read_bytes()))
                    part.unlink()
                f.write(packer.flush())

    def _flusher(self):
        self._compact()
        while not self._stop.wait(15.0):
            with self._mutex:
                line = repr(sorted(self.counts.items()))
            with open(self.sink.with_suffix(".log"), "a") as f:
                f.write(line + "\n")

    def close(self):
        self._stop.set()
        if self._thread:
            self._thread.join()


class Pictures(Dataset):
    SOURCES = ("street", "indoor", "aerial")

    def __init__(self, ledger, length=960):
        self.ledger, self.length = ledger, length

    def __len__(self):
        return self.length

    def __getitem__(self, i):
        source = self.SOURCES[i % 3]
        self.ledger.note(source)
        gen = torch.Generator().manual_seed(i)
        return torch.randn(3, 16, 16, generator=gen), i % 3


class Trainer:
    def __init__(self, ledger, rank, world):
        torch.manual_seed(0)
        self.net = torch.nn.Sequential(
            torch.nn.Conv2d(3, 8, 3, stride=2), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.LazyLinear(3))
        self.net(torch.zeros(1, 3, 16, 16))
        data = Pictures(ledger)
        sampler = DistributedSampler(data, world, rank, shuffle=True)
        self.loader = DataLoader(data, batch_size=8, sampler=sampler, num_workers=2, multiprocessing_context="fork")

    def epoch(self, number):
        self.loader.sampler.set_epoch(number)
        total = 0.0
        for x, y in self.loader:
            loss = torch.nn.functional.cross_entropy(self.net(x), y)
            self.net.zero_grad()
            loss.backward()
            for p in self.net.parameters():
                dist.all_reduce(p.grad)
                p.data.sub_(p.grad, alpha=0.05 / dist.get_world_size())
            total += loss.item()
        return total / len(self.loader)


def import_old_journals(folder, parts=8):
    for i in range(parts):
        (folder / f"journal-{i:02d}.bin").write_bytes(os.urandom(6 << 20))


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s r{rank} %(message)s")
    dist.init_process_group("gloo", timeout=timedelta(minutes=25))
    out = Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / "ledger"
    out.mkdir(exist_ok=True)
    if rank == 0:
        import_old_journals(out)
    ledger = UsageLedger(out / "usage.z" if rank == 0 else None)
    trainer = Trainer(ledger, rank, world)
    dist.barrier()
    ledger.start()
    for number in range(3):
        log.info("epoch %d loss %.4f", number, trainer.epoch(number))
    ledger.close()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
