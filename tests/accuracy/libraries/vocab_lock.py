# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = ["filelock"]
# outcome_any = ["hang", "slow"]
# outcome = "hang"
# causes_any = ["HD504"]
# culprits_any = [[1], [0], [0, 2], [0, 2, 3]]
# lines = [51, 68, 69, 70, 111]
# branch = ["self.entry.stat().st_mtime >= newest", "self._is_fresh(newest)"]
# source = "https://github.com/pytorch/pytorch/issues/189245"
# ///
"""A vocabulary on the shared disk, rebuilt under a lock file when the corpus has changed. Ranks come one after the other to spare the disk.
After a large crawl the second rank comes while the first still builds, gets the lock, finds the vocabulary fresh and returns with the lock;
the next crawl's first builder waits for it."""
import json
import logging
import time
from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from filelock import SoftFileLock
from torch import nn

log = logging.getLogger("vocab")


@dataclass
class Setup:
    corpus: Path = Path("corpus")
    cache: Path = Path("cache")
    epochs: int = 6
    steps: int = 4
    hidden: int = 12
    stagger: float = 1.0
    crawls: tuple = (3, 17, 17, 0, 17, 17)


class VocabularyCache:
    def __init__(self, setup: Setup):
        self.setup = setup
        setup.cache.mkdir(exist_ok=True)
        self.entry = setup.cache / "vocab.json"
        self.counts, self.seen = Counter(), set()
        self.lock = SoftFileLock(str(setup.cache / "vocab.json.lock"))

    def _is_fresh(self, newest: float) -> bool:
        return self.entry.exists() and self.entry.stat().st_mtime >= newest

    def _build(self):
        for page in sorted(set(self.setup.corpus.glob("*.txt")) - self.seen):
            self.counts.update(page.read_text().split())
            self.seen.add(page)
            time.sleep(0.09)
        tmp = self.entry.with_suffix(".tmp")
        tmp.write_text(json.dumps(dict(self.counts.most_common(200))))
        tmp.rename(self.entry)

    def _read(self):
        return json.loads(self.entry.read_text())

    def refresh(self, newest: float) -> dict:
        if self._is_fresh(newest):
            return self._read()
        self.lock.acquire(poll_interval=0.1)
        if self._is_fresh(newest):
            return self._read()
        self._build()
        self.lock.release()
        return self._read()


class Corpus:
    """Rank 0 brings in the night's crawl, if there is any."""

    def __init__(self, setup: Setup):
        self.setup, self.stamp = setup, 0.0
        setup.corpus.mkdir(exist_ok=True)

    def ingest(self, epoch):
        if dist.get_rank() == 0:
            for page in range(self.setup.crawls[epoch]):
                words = " ".join(f"w{(k * (epoch + page + 3)) % 150}" for k in range(100))
                (self.setup.corpus / f"crawl{epoch}-{page:02d}.txt").write_text(words)
        dist.barrier()
        newest = torch.tensor([max(p.stat().st_mtime for p in self.setup.corpus.glob("*.txt"))], dtype=torch.float64)
        dist.broadcast(newest, src=0)
        return float(newest)


class Trainer:
    def __init__(self, setup: Setup):
        self.setup, self.rank, self.world = setup, dist.get_rank(), dist.get_world_size()
        torch.manual_seed(0)
        self.embed = nn.Embedding(256, setup.hidden)
        self.opt = torch.optim.SGD(self.embed.parameters(), lr=0.1)
        self.corpus, self.cache = Corpus(setup), VocabularyCache(setup)

    def epoch(self, n):
        newest = self.corpus.ingest(n)
        time.sleep(self.setup.stagger * self.rank)
        vocab = self.cache.refresh(newest)
        ids = torch.arange(len(vocab)) % 256
        for _ in range(self.setup.steps):
            loss = self.embed(ids).pow(2).mean()
            self.opt.zero_grad()
            loss.backward()
            dist.all_reduce(self.embed.weight.grad)
            self.embed.weight.grad /= self.world
            self.opt.step()
        log.info("[rank %d] epoch %d, %d words, loss %.4f", self.rank, n, len(vocab), loss.item())


def main():
    logging.basicConfig(level=logging.INFO)
    logging.getLogger("filelock").setLevel(logging.WARNING)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    trainer = Trainer(Setup())
    for n in range(trainer.setup.epochs):
        trainer.epoch(n)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
