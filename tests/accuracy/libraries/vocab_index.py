# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# outcome = "hang"
# causes_any = ["HD504", "HD103", "HD508"]
# culprits = [0]
# lines = [62, 84, 66, 64, 60, 54]
# watch = "--give-up-after 8"
# source = "https://github.com/pytorch/pytorch/pull/190543"
# ///
"""Language-model pre-training on a byte corpus; one worker builds the offset index on disk, the rest read it."""
import json
import logging
import os
import tempfile
import zlib
from collections import Counter
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.utils.file_baton import FileBaton

log = logging.getLogger("index")


def write_corpus(path, crawled):
    """Plain utf-8, except for a stretch that an old crawler saved as latin-1."""
    lines = [f"line {i} of the corpus with some words {i % 7} {i % 11}" for i in range(4000)]
    with open(path, "wb") as f:
        for i, line in enumerate(lines):
            f.write(line.encode() if not crawled or i != 3517 else "façade, naïve and déjà vu".encode("latin-1"))
            f.write(b"\n")


class OffsetIndex:
    def __init__(self, folder, rank, world):
        self.folder, self.rank, self.world = Path(folder), rank, world

    def builder_of(self, path):
        return zlib.crc32(path.name.encode()) % self.world

    def scan(self, path, errors="replace"):
        offsets, words = [0], Counter()
        with open(path, "rb") as f:
            for raw in f:
                words.update(raw.decode("utf-8", errors=errors).split())
                offsets.append(offsets[-1] + len(raw))
        return {"offsets": offsets, "words": dict(words.most_common(200))}

    def load_or_build(self, path):
        target = self.folder / f"{path.stem}.index.json"
        baton = FileBaton(str(target) + ".lock")
        holder = self.builder_of(path) == self.rank and not target.exists() and baton.try_acquire()
        dist.barrier()
        if holder:
            try:
                index = self.scan(path, errors="strict")
            except UnicodeDecodeError as problem:
                log.warning("%s is not clean utf-8 (%s), keeping a repaired index in memory", path.name, problem.reason)
                return self.scan(path)
            target.write_text(json.dumps(index))
            baton.release()
            return index
        baton.wait()
        if target.exists():
            return json.loads(target.read_text())
        return self.scan(path)


class CharModel(nn.Module):
    def __init__(self, vocab, dim=24):
        super().__init__()
        self.table = nn.Embedding(vocab, dim)
        self.out = nn.Linear(dim, vocab)

    def forward(self, x):
        return self.out(self.table(x).mean(1))


def pretrain(index, rank, world, steps=50):
    vocab = torch.tensor([len(index["words"])])
    dist.all_reduce(vocab, op=dist.ReduceOp.MAX)
    torch.manual_seed(1)
    model = CharModel(int(vocab))
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    g = torch.Generator().manual_seed(rank)
    for step in range(steps):
        x = torch.randint(0, int(vocab), (16, 5), generator=g)
        loss = nn.functional.cross_entropy(model(x), x[:, 0])
        opt.zero_grad()
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
            p.grad.div_(world)
        opt.step()
    log.info("final loss %.3f", loss.item())


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    logging.basicConfig(level=logging.INFO, format=f"worker {rank}: %(message)s")
    folder = Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / "corpus"
    folder.mkdir(parents=True, exist_ok=True)
    corpora = [folder / "books.txt", folder / "crawl.txt"]
    if rank == world - 1:
        for path in corpora:
            write_corpus(path, crawled=path.stem == "crawl")
    dist.barrier()
    catalogue = OffsetIndex(folder, rank, world)
    indexes = [catalogue.load_or_build(path) for path in corpora]
    pretrain(max(indexes, key=lambda i: len(i["words"])), rank, world)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
