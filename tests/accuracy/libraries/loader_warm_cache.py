# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = []
# outcome = "hang"
# watch = "--give-up-after 8"
# causes_any = ["HD503", "HD505"]
# culprits = [1]
# lines = [55, 103, 106, 43, 48]
# source = "https://github.com/pytorch/pytorch/issues/75147"
# ///
"""DDP training from a compressed shard cache: a background thread unpacks the rank's shard while the loader workers read records."""
import logging
import lzma
import os
import tempfile
import threading
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset

log = logging.getLogger("cache")
RECORD = 64


class ShardCache:
    """Keeps hit counts per record and unpacks shards that came compressed."""

    def __init__(self, packed: Path):
        self.packed, self.plain = packed, packed.with_suffix(".bin")
        self.lock = threading.Lock()
        self.hits = {}
        self.thread = None

    def warm(self):
        if self.plain.exists():
            log.info("%s already unpacked", self.plain.name)
            return self
        self.thread = threading.Thread(target=self._unpack, name="unpack", daemon=True)
        self.thread.start()
        return self

    def _unpack(self):
        with self.lock:
            reader = lzma.LZMADecompressor()
            with open(self.packed, "rb") as src, open(self.plain, "wb") as dst:
                while block := src.read(1 << 16):
                    dst.write(reader.decompress(block))
        log.info("%s unpacked", self.plain.name)

    def record(self, i):
        with self.lock:  # per-key bookkeeping
            self.hits[i] = self.hits.get(i, 0) + 1
        with open(self.plain, "rb") as f:
            f.seek(i * RECORD)
            return f.read(RECORD)


class Records(Dataset):
    def __init__(self, cache, n):
        self.cache, self.n = cache, n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        raw = torch.frombuffer(bytearray(self.cache.record(i)), dtype=torch.uint8).float() / 255
        return raw, (raw[0] > 0.5).long()


def fetch(root: Path, rank: int, records: int):
    """Stands in for the download: mirrors serve plain files, the archive node serves .xz with all years in it."""
    root.mkdir(parents=True, exist_ok=True)
    packed = root / f"shard{rank}.xz"
    years = {1: 220_000}.get(rank, records)
    body = os.urandom(records * RECORD) + bytes(RECORD) * 400
    if years > records:
        filler = os.urandom(1 << 20)
        packer = lzma.LZMACompressor(preset=0)
        with open(packed, "wb") as f:
            f.write(packer.compress(body))
            for _ in range(years * RECORD // len(filler)):
                f.write(packer.compress(filler[:1 << 19] + bytes(range(256)) * 2048 * 8))
            f.write(packer.flush())
    else:
        packed.with_suffix(".bin").write_bytes(body)
    return packed


def run(rank, records=512):
    root = Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / "shards"
    packed = fetch(root, rank, records)
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(RECORD, 32), nn.ReLU(), nn.Linear(32, 2)))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    dist.barrier()
    cache = ShardCache(packed).warm()
    loader = DataLoader(Records(cache, records), batch_size=32, num_workers=1, shuffle=True)
    for epoch in range(2):
        for feats, labels in loader:
            loss = nn.functional.cross_entropy(model(feats), labels)
            opt.zero_grad()
            loss.backward()
            opt.step()
        log.info("epoch %d loss %.3f", epoch, loss.item())


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    logging.basicConfig(level=logging.INFO, format=f"[{rank}] %(message)s")
    run(rank)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
