# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 5"
# outcome = "hang"
# outcome_any = ["hang", "slow"]
# causes_any = ["HD508"]
# culprits_any = [[0], [3], [0, 3]]
# lines = [60, 62, 75, 77, 82, 109]
# branch = ["len(parts) < self.world", "not kept"]
# source = "https://github.com/huggingface/datasets/pull/564"
# ///
"""Deduplication of crawl dumps: every rank writes a part, rank 0 merges when all parts are there.

In the third dump nothing of rank 3's slice survives, so it writes no part; rank 0 looks for the fifth one for ever.
"""
import json
import logging
import tempfile
import time
import zlib
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

log = logging.getLogger("dedup")


@dataclass
class DedupConfig:
    dumps: int = 5
    docs_per_rank: int = 40
    min_quality: float = 0.35
    poll_seconds: float = 0.2


class QualityFilter:
    """A tiny linear model whose threshold all ranks agree on."""

    def __init__(self, cfg):
        self.cfg = cfg
        self.weights = torch.linspace(0.2, 1.0, 8)

    def score(self, doc):
        feats = torch.tensor([(zlib.crc32(f"{doc['id']}/{k}".encode()) % 1000) / 1000 for k in range(8)])
        return float(feats @ self.weights / self.weights.sum()) * (0.3 if doc["lang"] == "und" else 1.0)

    def calibrate(self, scores):
        total = torch.tensor([sum(scores), len(scores)], dtype=torch.float64)
        dist.all_reduce(total)
        return max(self.cfg.min_quality, 0.5 * float(total[0] / total[1]))


class PartWriter:
    def __init__(self, folder, rank):
        self.folder, self.rank = folder, rank

    def write(self, dump, kept):
        if not kept:
            log.warning("[rank %d] dump %d: nothing kept", self.rank, dump)
            return
        path = self.folder / f"dump{dump}-part{self.rank}.jsonl"
        tmp = path.with_suffix(".tmp")
        tmp.write_text("\n".join(json.dumps(d) for d in kept))
        tmp.rename(path)


class Merger:
    def __init__(self, folder, world, cfg):
        self.folder, self.world, self.cfg = folder, world, cfg

    def wait_for_parts(self, dump):
        parts = []
        while len(parts) < self.world:
            parts = sorted(self.folder.glob(f"dump{dump}-part*.jsonl"))
            time.sleep(self.cfg.poll_seconds)
        return parts

    def merge(self, dump):
        seen = set()
        for path in self.wait_for_parts(dump):
            for line in path.read_text().splitlines():
                seen.add(json.loads(line)["id"] % 977)
        (self.folder / f"dump{dump}.merged").write_text(str(len(seen)))
        return len(seen)


def crawl(dump, rank, cfg):
    base = dump * 10_000 + rank * 1_000
    lang = "und" if (dump, rank) == (2, 3) else "en"
    return [{"id": base + i, "lang": lang} for i in range(cfg.docs_per_rank)]


class DedupJob:
    def __init__(self, cfg, folder):
        self.rank, self.world, self.cfg = dist.get_rank(), dist.get_world_size(), cfg
        self.filter = QualityFilter(cfg)
        self.writer = PartWriter(folder, self.rank)
        self.merger = Merger(folder, self.world, cfg)

    def process(self, dump):
        docs = crawl(dump, self.rank, self.cfg)
        scores = [self.filter.score(d) for d in docs]
        limit = self.filter.calibrate(scores)
        self.writer.write(dump, [d for d, s in zip(docs, scores) if s >= limit])
        if self.rank == 0:
            log.info("dump %d merged: %d documents", dump, self.merger.merge(dump))
        dist.barrier()


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    box = [tempfile.mkdtemp(prefix="dedup-") if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(box, src=0)
    cfg = DedupConfig()
    job = DedupJob(cfg, Path(box[0]))
    for dump in range(cfg.dumps):
        job.process(dump)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
