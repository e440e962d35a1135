# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "healthy"
# source = "https://github.com/modelscope/ms-swift/issues/8234"
# ///
"""Healthy: rank 0 tokenizes through a process pool for some 25 s, its own process only waits; the others wait in a barrier."""
import hashlib
import logging
import multiprocessing as mp
import tempfile
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

log = logging.getLogger("tokenize")


@dataclass
class CorpusConfig:
    folder: Path
    documents: int = 400
    seconds: float = 25.0
    workers: int = 2
    vocab: int = 64
    steps: int = 10


def tokenize(job):
    index, seconds, vocab = job
    until, digest = time.time() + seconds, str(index).encode()
    while time.time() < until:  # a slow pure Python tokenizer
        for _ in range(200):
            digest = hashlib.sha256(digest).digest()
    gen = torch.Generator().manual_seed(index)
    return torch.randint(vocab, (16,), generator=gen).tolist()


class Corpus:
    def __init__(self, cfg, rank):
        self.cfg, self.rank, self.path = cfg, rank, cfg.folder / "corpus.pt"

    def prepare(self):
        if self.rank == 0 and not self.path.exists():
            jobs = [(i, self.cfg.seconds * self.cfg.workers / self.cfg.documents, self.cfg.vocab) for i in range(self.cfg.documents)]
            with mp.get_context("fork").Pool(self.cfg.workers) as pool:
                rows = pool.map(tokenize, jobs, chunksize=10)
            torch.save(torch.tensor(rows), self.path)
            log.info("%d documents tokenized", len(rows))
        dist.barrier()
        return torch.load(self.path)


class Bigram(nn.Module):
    def __init__(self, vocab):
        super().__init__()
        self.table = nn.Embedding(vocab, vocab)

    def forward(self, tokens):
        return nn.functional.cross_entropy(self.table(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    rank, world = dist.get_rank(), dist.get_world_size()
    box = [tempfile.mkdtemp(prefix="corpus-") if rank == 0 else None]
    dist.broadcast_object_list(box, src=0)
    cfg = CorpusConfig(Path(box[0]))
    tokens = Corpus(cfg, rank).prepare()[rank::world]
    model = nn.parallel.DistributedDataParallel(Bigram(cfg.vocab))
    optim = torch.optim.SGD(model.parameters(), lr=0.5)
    for step in range(cfg.steps):
        optim.zero_grad()
        loss = model(tokens)
        loss.backward()
        optim.step()
    if rank == 0:
        log.info("loss %.3f", loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
