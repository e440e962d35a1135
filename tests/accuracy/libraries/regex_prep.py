# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = []
# outcome = "hang"
# causes_any = ["HD509", "HD402"]
# culprits = [1]
# lines = [59, 76, 92]
# source = "https://github.com/huggingface/datasets/pull/5976"
# ///
"""Cleans a web crawl before training: every rank runs its part of the pages through a process pool, then all ranks build one label histogram."""
import logging
import multiprocessing as mp
import os
import random
import re
import resource
import tempfile
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

log = logging.getLogger("prep")

EMAIL_LIST = re.compile(r"^((\w+[.\-]?)+@(\w+[.\-]?)+;?)+$")
SPACES = re.compile(r"\s+")


class Crawl:
    """Pages as text lines, dealt to the ranks in turn; written once by a small synthesiser."""

    UNUSUAL = {204: "", 1237: "contactlists" * 5 + "_office_desk_" * 3 + "!", 1500: "@@@ " * 90}

    def __init__(self, root, rank, world):
        self.path = root / f"crawl-{rank}-of-{world}.txt"
        if not self.path.exists():
            self._synthesise(rank, world)

    def _synthesise(self, rank, world):
        rng = random.Random(31 + rank)
        vocab = ["alpha", "beta", "news", "contact", "mail", "office", "lab"]
        lines = []
        for page in range(rank, 1800, world):
            words = [rng.choice(vocab) for _ in range(rng.randrange(4, 40))]
            usual = " ".join(words) + f" {rng.choice(vocab)}@{rng.choice(vocab)}.org"
            lines.append(self.UNUSUAL.get(page, usual))
        self.path.write_text("\n".join(lines))

    def pages(self):
        return self.path.read_text().split("\n")


def limit_worker(cpu_seconds):
    """A page that takes ages should not eat the whole node."""
    soft, hard = resource.getrlimit(resource.RLIMIT_CPU)
    used = resource.getrusage(resource.RUSAGE_SELF)
    budget = int(used.ru_utime + used.ru_stime) + cpu_seconds
    resource.setrlimit(resource.RLIMIT_CPU, (budget, hard))


def clean_page(item):
    number, text = item
    text = SPACES.sub(" ", text).strip()
    contacts = sum(1 for token in text.split(" ") if EMAIL_LIST.match(token))
    return number, len(text), contacts


class Cleaner:
    def __init__(self, workers=2, cpu_seconds=4):
        self.workers, self.cpu_seconds = workers, cpu_seconds

    def run(self, pages):
        ctx = mp.get_context("fork")
        with ctx.Pool(self.workers, initializer=limit_worker, initargs=(self.cpu_seconds,)) as pool:
            return pool.map(clean_page, enumerate(pages), chunksize=25)


def histogram(rows, bins=8):
    counts = torch.zeros(bins)
    for _, length, contacts in rows:
        counts[min(length // 40 + contacts, bins - 1)] += 1
    dist.all_reduce(counts)
    return counts


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s r{rank} %(message)s")
    root = Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / "crawl"
    root.mkdir(parents=True, exist_ok=True)
    rows = Cleaner().run(Crawl(root, rank, world).pages())
    log.info("cleaned %d pages", len(rows))
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    counts = histogram(rows)
    log.info("histogram %s", counts.tolist())
    weights = (counts.sum() / (counts + 1)).sqrt()
    model = torch.nn.Linear(8, 8)
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(30):
        loss = torch.nn.functional.cross_entropy(model(torch.randn(16, 8)), torch.randint(8, (16,)), weight=weights)
        opt.zero_grad()
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
        opt.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
