# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["numpy"]
# outcome = "healthy"
# watch = "--give-up-after 10"
# source = "https://github.com/huggingface/trl/pull/3106"
# ///
"""Rank 0 tokenises and packs a corpus with two helper processes while its peers wait at a barrier; afterwards all train on the packed rows and rank 0 validates alone."""
import bz2
import collections
import contextlib
import logging
import multiprocessing as mp
import os
import random
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from datetime import timedelta
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

log = logging.getLogger("pack")
ROW = 64


def make_text(seed, documents=260):
    rng = random.Random(seed)
    stems = ["ka", "lo", "mi", "ter", "san", "gru", "pel", "dor", "vi", "nax"]
    return [" ".join("".join(rng.choices(stems, k=rng.randint(1, 4))) for _ in range(rng.randint(30, 90))) for _ in range(documents)]


def learn_merges(texts, merges):
    words = collections.Counter(w for t in texts for w in t.split())
    splits = {w: tuple(w) for w in words}
    table = []
    for _ in range(merges):
        pairs = collections.Counter()
        for w, n in words.items():
            for a, b in zip(splits[w], splits[w][1:]):
                pairs[a, b] += n
        if not pairs:
            break
        best = max(pairs, key=lambda p: (pairs[p], p))
        table.append(best)
        for w, parts in splits.items():
            out, i = [], 0
            while i < len(parts):
                if i + 1 < len(parts) and (parts[i], parts[i + 1]) == best:
                    out.append(parts[i] + parts[i + 1])
                    i += 2
                else:
                    out.append(parts[i])
                    i += 1
            splits[w] = tuple(out)
    return table, splits


def pack_shard(job):
    """Packs text into rows until the time for this shard is used up; a shard has at least one round of text."""
    seed, folder, seconds = job
    rows, extra, until = [], 0, time.monotonic() + seconds
    while not rows or time.monotonic() < until:
        extra += 1
        texts = make_text(seed * 100 + extra)
        _, splits = learn_merges(texts, merges=35)
        ids = [sum(map(ord, piece)) % 512 for t in texts for w in t.split() for piece in splits[w]]
        usable = len(ids) // ROW * ROW
        rows.append(np.array(ids[:usable]).reshape(-1, ROW))
        bz2.compress(np.concatenate(rows).tobytes())
    target = Path(folder) / f"rows-{seed}.npy"
    np.save(target, np.concatenate(rows))
    return str(target), len(rows)


@contextlib.contextmanager
def main_rank_first(rank):
    if rank != 0:
        dist.barrier()
    yield
    if rank == 0:
        dist.barrier()


def prepare(folder, rank, shards=6, seconds=6.0):
    with main_rank_first(rank):
        if not (folder / "DONE").exists():
            with ProcessPoolExecutor(2, mp_context=mp.get_context("spawn")) as pool:
                for path, _ in pool.map(pack_shard, [(s, str(folder), seconds) for s in range(shards)]):
                    log.info("packed %s", path)
            (folder / "DONE").touch()
    return np.concatenate([np.load(p) for p in sorted(folder.glob("rows-*.npy"))])


def validate(model, rows):
    with torch.no_grad():
        return sum(model(r).item() for r in rows.split(32)) / max(len(rows.split(32)), 1)


class NextToken(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.mix, self.head = torch.nn.Embedding(512, 32), torch.nn.GRU(32, 32, batch_first=True), torch.nn.Linear(32, 512)

    def forward(self, rows):
        hidden, _ = self.mix(self.emb(rows[:, :-1]))
        return torch.nn.functional.cross_entropy(self.head(hidden).flatten(0, 1), rows[:, 1:].flatten())


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s r{rank} %(message)s")
    dist.init_process_group("gloo", timeout=timedelta(minutes=10))
    folder = Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / "packed"
    folder.mkdir(exist_ok=True)
    rows = torch.from_numpy(prepare(folder, rank))
    torch.manual_seed(0)
    model = NextToken()
    mine = rows[rank::world]
    for step in range(60):
        loss = model(mine[torch.randint(len(mine), (16,))])
        model.zero_grad()
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
            p.data.sub_(p.grad, alpha=0.5 / world)
        if step % 30 == 29:
            score = [validate(model, rows[:640])] if rank == 0 else [None]
            dist.broadcast_object_list(score, src=0)
            log.info("step %d validation %.3f", step, score[0])
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
