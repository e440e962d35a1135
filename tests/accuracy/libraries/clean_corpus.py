# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = []
# outcome = "hang"
# causes_any = ["HD509", "HD505"]
# culprits = [1]
# lines = [81, 103, 114, 116]
# source = "https://github.com/dssg/triage/issues/501"
# ///
import ctypes
import logging
import multiprocessing as mp
import random
import re
import resource
import signal
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

log = logging.getLogger("clean")

PR_SET_PDEATHSIG = 1
TRAILER = re.compile(r"((?:-|=|\s)+)+END$")
SPACES = re.compile(r"\s+")


@dataclass
class CleanConfig:
    docs: int = 240
    workers: int = 2
    cpu_seconds: int = 2
    chunk: int = 8


class Crawl:
    """Synthetic crawl: ordinary lines, and a few pages made of separators."""

    WORDS = "the model reads tokens from every shard and writes them back".split()

    def __init__(self, n, seed):
        self.n = n
        self.rng = random.Random(seed)
        self.rules = ["=" * 9, "-" * 48, "=" * 10, "." * 12, "-" * 8]

    def _page(self):
        words = [self.rng.choice(self.WORDS) for _ in range(30)]
        return " ".join(words) + "  -- END"

    def _ruler(self, width):
        return "-" * width + "."

    def pages(self):
        for i in range(self.n):
            if i % 58 == 28:
                yield self._ruler(width=len(self.rules[i % len(self.rules)]))
            else:
                yield self._page()


def limit_worker(cpu_seconds):
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def clean(text):
    text = TRAILER.sub("", text)
    return SPACES.sub(" ", text).strip()


class CorpusCleaner:
    def __init__(self, cfg):
        self.cfg = cfg

    def run(self, pages):
        ctx = mp.get_context("fork")
        with ctx.Pool(self.cfg.workers, limit_worker, (self.cfg.cpu_seconds,)) as pool:
            return pool.map(clean, pages, chunksize=self.cfg.chunk)


class Shards:
    def __init__(self, pages, rank, world):
        per = len(pages) // world
        self.pages = pages[rank * per : (rank + 1) * per]

    def short_only(self, limit=400):
        return [p for p in self.pages if len(p) <= limit]


def histogram(texts, buckets=16):
    counts = torch.zeros(buckets)
    for t in texts:
        counts[min(len(t) // 16, buckets - 1)] += 1
    return counts


def prepare(cfg, rank, world):
    pages = list(Crawl(cfg.docs, seed=5).pages())
    shard = Shards(pages, rank, world)
    cleaned = CorpusCleaner(cfg).run(shard.short_only())
    log.info("rank %d cleaned %d pages", rank, len(cleaned))
    return cleaned


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(hours=1))
    rank, world = dist.get_rank(), dist.get_world_size()
    cfg = CleanConfig()
    texts = prepare(cfg, rank, world)
    counts = histogram(texts)
    dist.all_reduce(counts)
    if rank == 0:
        log.info("length histogram %s", counts.tolist())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
