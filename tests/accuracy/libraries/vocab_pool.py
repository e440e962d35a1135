# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = []
# outcome = "healthy"
# ///
"""Rank 0 prepares a vocabulary with a pool of children; the others poll for its mark, then all train."""
import json
import logging
import multiprocessing as mp
import os
import random
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

log = logging.getLogger("vocab")


@dataclass
class Config:
    shards: int = 5
    docs: int = 2000
    merges: int = 9
    size: int = 200
    steps: int = 30
    poll_s: float = 0.3

    @property
    def folder(self) -> Path:
        return Path(tempfile.gettempdir()) / f"vocab-{os.environ['TORCHELASTIC_RUN_ID']}-{os.environ['MASTER_PORT']}"


def count_shard(job) -> Counter:
    seed, docs, merges = job
    rng = random.Random(seed)
    text = ["".join(rng.choices("etaoinshrdlu", k=rng.randint(3, 9))) for _ in range(docs)]
    counts: Counter = Counter()
    begin = time.monotonic()
    for width in range(1, merges):
        for word in text:
            for k in range(len(word) - width + 1):
                counts[word[k:k + width]] += 1
    while time.monotonic() - begin < 2.0:
        sum(i * i for i in range(20_000))
    return counts


class VocabBuilder:
    def __init__(self, cfg: Config):
        self.cfg = cfg

    @property
    def mark(self) -> Path:
        return self.cfg.folder / "done"

    def build(self) -> None:
        self.cfg.folder.mkdir(parents=True, exist_ok=True)
        total: Counter = Counter()
        jobs = [(seed, self.cfg.docs, self.cfg.merges) for seed in range(self.cfg.shards)]
        with mp.get_context("spawn").Pool(2) as pool:
            for n, part in enumerate(pool.imap_unordered(count_shard, jobs), start=1):
                total.update(part)
                log.info("%d of %d shards counted", n, len(jobs))
        words = [w for w, _ in total.most_common(self.cfg.size)]
        (self.cfg.folder / "vocab.json").write_text(json.dumps(words))
        self.mark.touch()

    def wait(self) -> None:
        while not self.mark.exists():
            time.sleep(self.cfg.poll_s)

    def load(self) -> dict:
        words = json.loads((self.cfg.folder / "vocab.json").read_text())
        return {w: n for n, w in enumerate(words)}


def prepare(cfg: Config) -> dict:
    builder = VocabBuilder(cfg)
    if dist.get_rank() == 0 and not builder.mark.exists():
        builder.build()
    else:
        builder.wait()
    dist.barrier()
    return builder.load()


def train(cfg: Config, vocab: dict) -> float:
    emb = torch.nn.Embedding(len(vocab), 8)
    opt = torch.optim.SGD(emb.parameters(), lr=0.1)
    loss = torch.zeros(())
    for step in range(cfg.steps):
        ids = torch.randint(0, len(vocab), (32,))
        opt.zero_grad()
        loss = emb(ids).square().mean()
        loss.backward()
        dist.all_reduce(emb.weight.grad)
        opt.step()
        if dist.get_rank() == 2 and step == 10:
            time.sleep(4)
    return loss.item()


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    dist.init_process_group("gloo", timeout=timedelta(hours=1))
    cfg = Config()
    vocab = prepare(cfg)
    log.info("rank %d: %d words, loss %.3f", dist.get_rank(), len(vocab), train(cfg, vocab))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
