# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# outcome = "healthy"
# source = "https://github.com/mosaicml/composer/pull/2054"
# ///
"""One rank builds a search index with child processes; the others poll the store for it before they query."""
import logging
import multiprocessing as mp
import time
from datetime import timedelta

import torch
import torch.distributed as dist

log = logging.getLogger("index")


def build_segment(number):
    end = time.monotonic() + 5.0
    value = number + 1
    while time.monotonic() < end:
        for _ in range(2000):
            value = (value * 1103515245 + 12345) % (1 << 31)
        time.sleep(0.02)
    return number, value % 1000


class IndexService:
    def __init__(self, store, builder_rank, segments=6):
        self.store = dist.PrefixStore("index", store)
        self.builder_rank = builder_rank
        self.segments = segments

    def _build(self):
        ctx = mp.get_context("fork")
        table = {}
        with ctx.Pool(2) as pool:
            for number, value in pool.imap_unordered(build_segment, range(self.segments)):
                table[number] = value
                self.store.set("progress", str(len(table)))
        for number, value in table.items():
            self.store.set(f"segment/{number}", str(value))
        self.store.set("ready", "1")

    def _poll(self):
        seen = None
        while not self.store.check(["ready"]):
            if self.store.check(["progress"]):
                progress = int(self.store.get("progress"))
                if progress != seen:
                    log.info("rank %d sees %d of %d segments", dist.get_rank(), progress, self.segments)
                    seen = progress
            time.sleep(0.5)

    def open(self):
        if dist.get_rank() == self.builder_rank:
            self._build()
        else:
            self._poll()
        return [int(self.store.get(f"segment/{i}")) for i in range(self.segments)]


def query(values, rounds=5):
    vec = torch.tensor(values, dtype=torch.float32)
    for r in range(rounds):
        score = (vec * (dist.get_rank() + r + 1)).sum()
        dist.all_reduce(score, op=dist.ReduceOp.MAX)
    return score.item()


def main():
    logging.basicConfig(level=logging.INFO)
    dist.init_process_group("gloo", timeout=timedelta(minutes=5))
    store = dist.distributed_c10d._get_default_store()
    values = IndexService(store, builder_rank=2).open()
    dist.barrier()
    log.info("best score %.1f", query(values))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
