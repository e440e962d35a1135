# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# outcome = "hang"
# causes_any = ["HD509", "HD402"]
# culprits = [2]
# lines = [23, 53, 54, 72]
# source = "https://github.com/uqfoundation/pathos/issues/230"
# ///
"""Featurises one crawl per rank in a small process pool and merges the length histograms of all crawls."""
import logging
import multiprocessing as mp
import random
import re
import signal
from dataclasses import dataclass

import torch
import torch.distributed as dist

log = logging.getLogger("featurise")
DOC_SECONDS = 30
TITLE = re.compile(r"^(\w+[\s.,]?)+$")


@dataclass(frozen=True)
class Settings:
    crawls: tuple = ("news", "wiki", "forum", "books")
    docs_per_crawl: int = 240
    pool_size: int = 2
    doc_seconds: int = 5
    buckets: int = 16


def synth_crawl(name, count):
    rng = random.Random(name)
    words = ["lantern", "harbour", "copper", "meadow", "signal", "winter", "orchard"]
    docs = []
    for i in range(count):
        title = " ".join(rng.choice(words) for _ in range(rng.randint(2, 5)))
        if name == "forum" and i % 97 == 96:
            title = "x" * 40 + "=?"
        docs.append({"id": f"{name}-{i}", "title": title, "body": " ".join(rng.choices(words, k=rng.randint(5, 60)))})
    return docs


def set_budget(seconds):
    global DOC_SECONDS
    DOC_SECONDS = seconds


def featurise(doc):
    signal.alarm(DOC_SECONDS)
    clean = TITLE.match(doc["title"]) is not None
    signal.alarm(0)
    tokens = doc["body"].split()
    return {"id": doc["id"], "clean": clean, "length": len(tokens), "unique": len(set(tokens))}


class CrawlJob:
    def __init__(self, settings, rank):
        self.settings = settings
        self.rank = rank
        self.name = settings.crawls[rank % len(settings.crawls)]

    def run(self):
        docs = synth_crawl(self.name, self.settings.docs_per_crawl)
        log.info("rank %d: %d documents of crawl %s", self.rank, len(docs), self.name)
        ctx = mp.get_context("fork")
        with ctx.Pool(self.settings.pool_size, initializer=set_budget,
                      initargs=(self.settings.doc_seconds,)) as pool:
            rows = pool.map(featurise, docs, chunksize=16)
        return rows

    def histogram(self, rows):
        hist = torch.zeros(self.settings.buckets)
        for row in rows:
            hist[min(row["length"] // 4, self.settings.buckets - 1)] += 1
        return hist


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    dist.init_process_group("gloo")
    settings = Settings()
    job = CrawlJob(settings, dist.get_rank())
    rows = job.run()
    hist = job.histogram(rows)
    dist.all_reduce(hist)
    if dist.get_rank() == 0:
        log.info("lengths over all crawls: %s", hist.tolist())
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
