# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = []
# outcome = "hang"
# causes_any = ["HD509", "HD402"]
# culprits = [1]
# lines = [39, 43, 70, 71, 104]
# source = "https://github.com/mapillary/OpenSfM/issues/190"
# ///
"""Cleans the rank's documents in a pool of limited worker processes, agrees on the vocabulary, then trains a bag-of-words model."""
import logging
import multiprocessing
import re
import resource
from collections import Counter
from dataclasses import dataclass

import torch
import torch.distributed as dist

log = logging.getLogger("cleaner")


@dataclass(frozen=True)
class CleanerConfig:
    workers: int = 2
    cpu_seconds: int = 2
    documents: int = 240
    vocabulary: int = 64


BOILERPLATE = re.compile(r"^(\s*[-=*]+\s*)+$")
WORD = re.compile(r"[a-z]+")


def limit_worker(cpu_seconds: int):
    """Keeps one broken document from burning the node's quota."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds))


def clean(document: str) -> Counter:
    kept = [line for line in document.splitlines() if not BOILERPLATE.match(line)]
    return Counter(WORD.findall(" ".join(kept).lower()))


class Crawl:
    """Text documents as the crawler left them, by host."""

    HOSTS = ("news", "mailing-list", "manuals")

    def __init__(self, host: str, count: int):
        self.host, self.count = host, count

    def documents(self):
        for number in range(self.count):
            body = [f"word{chr(97 + (number * k) % 26)} common text {self.host} line" for k in range(30)]
            if self.host == "mailing-list" and number == 57:
                body.append("-" * 64 + " forwarded message")
            yield "\n".join(body)


class Cleaner:
    def __init__(self, cfg: CleanerConfig):
        self.cfg = cfg
        self.context = multiprocessing.get_context("fork")

    def run(self, crawl: Crawl) -> Counter:
        total = Counter()
        with self.context.Pool(self.cfg.workers, limit_worker, (self.cfg.cpu_seconds,)) as pool:
            for counts in pool.map(clean, crawl.documents(), chunksize=20):
                total.update(counts)
        log.info("%s: %d distinct words", crawl.host, len(total))
        return total


def agree_on_vocabulary(counts: Counter, size: int) -> list:
    everyone = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, counts.most_common(4 * size))
    merged = Counter()
    for part in everyone:
        merged.update(dict(part))
    return [word for word, _ in sorted(merged.items(), key=lambda item: (-item[1], item[0]))[:size]]


def train(counts: Counter, vocabulary: list, steps: int):
    features = torch.tensor([float(counts[word]) for word in vocabulary])
    weight = torch.zeros(len(vocabulary), requires_grad=True)
    for _ in range(steps):
        loss = ((weight * features).sum() - 1).pow(2)
        (gradient,) = torch.autograd.grad(loss, weight)
        dist.all_reduce(gradient)
        with torch.no_grad():
            weight -= 1e-9 * gradient
    return loss.item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    logging.basicConfig(level=logging.INFO, format=f"[rank {rank}] %(message)s")
    cfg = CleanerConfig()
    crawl = Crawl(Crawl.HOSTS[rank % len(Crawl.HOSTS)], cfg.documents)
    counts = Cleaner(cfg).run(crawl)
    vocabulary = agree_on_vocabulary(counts, cfg.vocabulary)
    log.info("loss %.4f over %d words", train(counts, vocabulary, 30), len(vocabulary))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
