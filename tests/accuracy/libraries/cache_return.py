# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "hang"
# causes_any = ["HD101"]
# culprits_any = [[1], [2], [3], [1, 2], [1, 3], [2, 3], [1, 2, 3]]
# lines = [56, 57, 63, 100]
# branch = ["cache.exists()"]
# source = "https://github.com/hao-ai-lab/FastVideo/pull/598"
# ///
"""Latent-video training that rebuilds its parquet index at each epoch.

Whoever finds the index file returns at once, the others pass a barrier: rank 3, late because it compresses a debug dump of
outliers, finds the file that rank 0 has just written.
"""
import hashlib
import json
import logging
import lzma
import os
import tempfile
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

log = logging.getLogger("latents")


@dataclass
class DataConfig:
    root: Path
    files: int = 12
    rows_per_file: int = 20
    seed: int = 7
    outlier_sigma: float = 3.2


class LatentIndex:
    """Row counts of the latent files, kept in a json file beside them."""

    def __init__(self, cfg, rank):
        self.cfg, self.rank = cfg, rank

    def scan(self, epoch):
        entries = []
        for i in range(self.cfg.files):
            name = f"part-{i:05d}.parquet"
            digest = hashlib.sha1(f"{name}/{epoch}/{self.cfg.seed}".encode()).hexdigest()
            entries.append({"file": name, "rows": self.cfg.rows_per_file, "order": int(digest[:6], 16)})
        return sorted(entries, key=lambda e: e["order"])

    def load(self, epoch):
        cache = self.cfg.root / f"index_{epoch:03d}.json"
        if cache.exists():
            return json.loads(cache.read_text())
        if self.rank == 0:
            entries = self.scan(epoch)
            part = cache.with_suffix(".tmp")
            part.write_text(json.dumps(entries))
            part.rename(cache)
        dist.barrier()
        return self.load(epoch)


class OutlierDump:
    def __init__(self, folder, sigma):
        self.folder, self.sigma, self.kept = folder, sigma, []

    def offer(self, latents):
        if latents.abs().max() > self.sigma:
            self.kept.append(latents)

    def flush(self, epoch, rank):
        if not self.kept:
            return
        blob = b"".join(os.urandom(2 << 20) for _ in self.kept[:4])
        (self.folder / f"outliers_{epoch}_{rank}.xz").write_bytes(lzma.compress(blob, preset=6))
        self.kept.clear()


class LatentTrainer:
    def __init__(self, cfg, rank, world):
        self.cfg, self.rank, self.world = cfg, rank, world
        self.index = LatentIndex(cfg, rank)
        self.dump = OutlierDump(cfg.root, cfg.outlier_sigma)
        self.model = torch.nn.Linear(16, 16)
        self.opt = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.noise = torch.Generator().manual_seed(cfg.seed + rank)

    def latents(self, entry, epoch):
        x = torch.randn(8, 16, generator=self.noise).clamp(-3, 3)
        if epoch == 2 and self.rank == 3 and entry["order"] % 2:
            x = x * 1.6
        return x

    def sync_grads(self):
        for p in self.model.parameters():
            dist.all_reduce(p.grad)
            p.grad /= self.world

    def epoch(self, epoch):
        entries = self.index.load(epoch)
        for entry in entries[:8]:
            x = self.latents(entry, epoch)
            self.dump.offer(x)
            loss = (self.model(x) - x).pow(2).mean()
            self.opt.zero_grad()
            loss.backward()
            self.sync_grads()
            self.opt.step()
        self.dump.flush(epoch, self.rank)
        return loss.item()


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    rank, world = dist.get_rank(), dist.get_world_size()
    box = [tempfile.mkdtemp(prefix="latents-") if rank == 0 else None]
    dist.broadcast_object_list(box, src=0)
    trainer = LatentTrainer(DataConfig(Path(box[0])), rank, world)
    for epoch in range(6):
        loss = trainer.epoch(epoch)
        log.info("[rank %d] epoch %d loss %.4f", rank, epoch, loss)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
