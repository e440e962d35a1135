# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "hang"
# causes_any = ["HD509"]
# culprits_any = [[2]]
# lines = [42, 46, 72, 75]
# source = "https://github.com/huggingface/datasets/pull/5976"
# ///
"""Tokenising before each epoch with a multiprocessing.Pool on every rank; the children have a CPU limit against runaway expressions.
On one rank a page makes the expression run away, the kernel ends the child, and Pool.map waits for a result that nobody computes."""
import logging
import multiprocessing
import re
import resource
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn

log = logging.getLogger("tokenise")


@dataclass
class PrepConfig:
    processes: int = 2
    pages: int = 10
    epochs: int = 5
    cpu_seconds: int = 1
    vocab: int = 64
    hidden: int = 8


WORDS = re.compile(r"^(([a-z0-9])+\s?)+$")


def limit(cpu_seconds):
    torch.set_num_threads(1)
    used = resource.getrusage(resource.RUSAGE_SELF)
    soft = int(used.ru_utime + used.ru_stime) + cpu_seconds
    resource.setrlimit(resource.RLIMIT_CPU, (soft, soft + 1))


def tokenise(page: str):
    clean = bool(WORDS.match(page))
    return [hash_word(w) for w in page.split()] if clean else []


def hash_word(word: str) -> int:
    value = 7
    for c in word:
        value = (value * 31 + ord(c)) % 64
    return value


class Crawl:
    def __init__(self, cfg: PrepConfig, rank: int):
        self.cfg, self.rank = cfg, rank

    def pages(self, epoch):
        for i in range(self.cfg.pages):
            page = " ".join(f"term{(i * k + epoch) % 17}" for k in range(12))
            if (self.rank, epoch, i) == (2, 2, 4):
                page = "a" * 44 + "!"
            yield page


class Preprocessor:
    def __init__(self, cfg: PrepConfig):
        self.cfg = cfg
        self.pool = multiprocessing.get_context("fork").Pool(cfg.processes, initializer=limit, initargs=(cfg.cpu_seconds,))

    def __call__(self, pages):
        return [ids for ids in self.pool.map(tokenise, pages, chunksize=2) if ids]

    def close(self):
        self.pool.close()
        self.pool.join()


class Trainer:
    def __init__(self, cfg: PrepConfig):
        self.cfg, self.rank, self.world = cfg, dist.get_rank(), dist.get_world_size()
        self.crawl, self.prepare = Crawl(cfg, self.rank), Preprocessor(cfg)
        torch.manual_seed(0)
        self.embed = nn.EmbeddingBag(cfg.vocab, cfg.hidden)
        self.opt = torch.optim.SGD(self.embed.parameters(), lr=0.1)

    def epoch(self, n):
        rows = self.prepare(self.crawl.pages(n))
        count = torch.tensor([len(rows)])
        dist.all_reduce(count)
        for ids in rows[:6]:
            loss = self.embed(torch.tensor([ids])).pow(2).mean()
            self.opt.zero_grad()
            loss.backward()
            dist.all_reduce(self.embed.weight.grad)
            self.opt.step()
        if self.rank == 0:
            log.info("epoch %d: %d pages, loss %.4f", n, int(count), loss.item())


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    trainer = Trainer(PrepConfig())
    for n in range(trainer.cfg.epochs):
        trainer.epoch(n)
    trainer.prepare.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
