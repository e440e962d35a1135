# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# outcome = "healthy"
# watch = "--give-up-after 10"
# source = "own"
# ///
"""One rank packs a corpus while the others poll for the finished pack; readers leave as soon as their part is read."""
import json
import logging
import os
import pathlib
import random
import tempfile
import time
import zlib

import torch
import torch.distributed as dist

log = logging.getLogger("pack")
PACKER = 1
SECONDS = 20


class Packer:
    """Compresses pages at the highest level until the time that was granted for packing is used up."""

    def __init__(self, folder):
        self.folder = folder
        self.rng = random.Random(5)

    def page(self):
        words = [f"w{int(self.rng.paretovariate(1.2)) % 5000}" for _ in range(6000)]
        return " ".join(words).encode()

    def run(self, seconds):
        end, sizes = time.monotonic() + seconds, []
        with open(self.folder / "pack.tmp", "wb") as out:
            while time.monotonic() < end:
                blob = zlib.compress(self.page(), 9)
                out.write(blob)
                sizes.append(len(blob))
                if len(sizes) % 100 == 0:
                    out.flush()
                    os.fsync(out.fileno())
        (self.folder / "pack.tmp").rename(self.folder / "pack.bin")
        (self.folder / "sizes.tmp").write_text(json.dumps(sizes))
        (self.folder / "sizes.tmp").rename(self.folder / "sizes.json")
        log.info("packed %d pages", len(sizes))


class Reader:
    def __init__(self, folder, part, parts):
        self.folder, self.part, self.parts = folder, part, parts

    def wait(self):
        index = self.folder / "sizes.json"
        while not index.exists():
            time.sleep(0.2)
        return json.loads(index.read_text())

    def run(self, limit):
        sizes = self.wait()
        words, offset = 0, 0
        with open(self.folder / "pack.bin", "rb") as pack:
            for number, size in enumerate(sizes):
                if number % self.parts == self.part and number < limit:
                    pack.seek(offset)
                    words += zlib.decompress(pack.read(size)).count(b" ") + 1
                offset += size
        return words


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    folder = pathlib.Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / f"pack-{os.getppid()}"
    folder.mkdir(exist_ok=True)
    core = dist.new_group([0, PACKER, 2])
    dist.barrier()
    if rank == PACKER:
        Packer(folder).run(SECONDS)
        words = 0
    else:
        words = Reader(folder, part=rank % 3, parts=3).run(limit=400 if rank == 3 else 4000)
    log.info("rank %d: %d words", rank, words)
    if rank == 3:
        return
    total = torch.tensor(words)
    dist.all_reduce(total, group=core)
    if rank == 0:
        log.info("%d words in the pack of the core ranks", total.item())
        end = time.monotonic() + 4
        while time.monotonic() < end:
            zlib.crc32(os.urandom(1 << 16))
    dist.barrier(group=core)


if __name__ == "__main__":
    main()
