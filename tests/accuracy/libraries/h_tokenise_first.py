# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = []
# outcome = "healthy"
# watch = "--give-up-after 10"
# source = "https://github.com/saforem2/ezpz/pull/149"
# ///
"""The first rank tokenises the corpus with a pool of processes while the others wait; then all train on it."""
import hashlib
import json
import logging
import multiprocessing as mp
import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn as nn

log = logging.getLogger("tokenise")
VOCAB = 256


def tokenise(job):
    """Hash-based word pieces of one part; the merges are looked for afresh in every part."""
    part, folder, seconds = job
    words = [f"word{(part * 131 + i * 17) % 4001}" for i in range(3000)]
    until, rounds, ids = time.monotonic() + seconds, 0, []
    while time.monotonic() < until or not ids:
        ids = [hashlib.blake2b(f"{w}:{rounds}".encode(), digest_size=2).digest()[0] % VOCAB for w in words]
        rounds += 1
    path = Path(folder) / f"part-{part}.json"
    path.write_text(json.dumps(ids))
    return str(path), rounds


class Corpus:
    def __init__(self, folder, parts=6, workers=2):
        self.folder, self.parts, self.workers = Path(folder), parts, workers

    def prepare(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        jobs = [(i, str(self.folder), 7.5) for i in range(self.parts)]
        with mp.get_context("spawn").Pool(self.workers) as pool:
            for path, rounds in pool.imap_unordered(tokenise, jobs):
                log.info("%s ready after %d rounds", path, rounds)

    def load(self):
        ids = []
        for path in sorted(self.folder.glob("part-*.json")):
            ids += json.loads(path.read_text())
        return torch.tensor(ids)


def train(ids, rank, world, steps=200, length=16):
    torch.manual_seed(0)
    model = nn.Sequential(nn.EmbeddingBag(VOCAB, 24), nn.Linear(24, VOCAB))
    g = torch.Generator().manual_seed(rank)
    for step in range(steps):
        start = torch.randint(0, len(ids) - length - 1, (32,), generator=g)
        x = torch.stack([ids[s:s + length] for s in start])
        y = ids[start + length]
        loss = nn.functional.cross_entropy(model(x), y)
        model.zero_grad()
        loss.backward()
        with torch.no_grad():
            for p in model.parameters():
                dist.all_reduce(p.grad)
                p -= 0.5 * p.grad / world
        if step % 50 == 0:
            log.info("step %d loss %.3f", step, loss.item())


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    logging.basicConfig(level=logging.INFO, format=f"r{rank} %(message)s")
    corpus = Corpus(Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / "corpus")
    if rank > 0:
        dist.barrier()
    else:
        corpus.prepare()
        dist.barrier()
    train(corpus.load(), rank, world)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
