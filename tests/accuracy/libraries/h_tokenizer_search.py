# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = []
# outcome = "healthy"
# watch = "--give-up-after 10"
# source = "https://github.com/allenai/open-instruct/pull/1821"
# ///
"""Rank 0 searches merge rules for a small tokenizer in child processes for half a minute while the others wait, then everybody trains."""
import collections
import json
import logging
import multiprocessing as mp
import os
import random
import tempfile
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("bpe")
SEARCH_SECONDS = 30.0


def corpus(seed, words=3000):
    rng = random.Random(seed)
    roots = ["tra", "ken", "mo", "del", "dis", "tri", "bu", "ted", "gra", "di", "ent"]
    return ["".join(rng.choices(roots, k=rng.randint(1, 4))) for _ in range(words)]


def merge_word(parts, pair):
    out, i = [], 0
    while i < len(parts):
        if i + 1 < len(parts) and (parts[i], parts[i + 1]) == pair:
            out.append(parts[i] + parts[i + 1])
            i += 2
        else:
            out.append(parts[i])
            i += 1
    return out


def learn(words, merges):
    table = [list(w) for w in words]
    rules = []
    for _ in range(merges):
        pairs = collections.Counter(p for parts in table for p in zip(parts, parts[1:]))
        if not pairs:
            break
        best = pairs.most_common(1)[0][0]
        rules.append(best)
        table = [merge_word(parts, best) for parts in table]
    return rules, sum(map(len, table))


def search(seed, deadline, results):
    """Tries random subsets until the time is over and reports the rules that compress best."""
    rng, best = random.Random(seed), (None, float("inf"))
    rounds = 0
    while time.monotonic() < deadline:
        rules, size = learn(rng.sample(corpus(seed), 400), merges=rng.randint(8, 24))
        if size < best[1]:
            best = (rules, size)
        rounds += 1
    results.put((best[1], best[0], rounds))


def build(path):
    deadline = time.monotonic() + SEARCH_SECONDS
    context = mp.get_context("fork")
    results = context.Queue()
    workers = [context.Process(target=search, args=(k, deadline, results)) for k in range(2)]
    for w in workers:
        w.start()
    found = [results.get() for _ in workers]
    for w in workers:
        w.join()
    size, rules, _ = min(found)
    path.write_text(json.dumps(rules))
    log.info("%d rounds, best size %d with %d rules", sum(f[2] for f in found), size, len(rules))


def encode(words, rules):
    symbols = {}
    rows = []
    for w in words:
        parts = list(w)
        for pair in rules:
            parts = merge_word(parts, pair)
        rows.append([symbols.setdefault(p, len(symbols) % 255 + 1) for p in parts][:8])
    return torch.tensor([r + [0] * (8 - len(r)) for r in rows])


def main():
    dist.init_process_group("gloo", timeout=timedelta(minutes=10))
    rank = dist.get_rank()
    logging.basicConfig(level=logging.INFO, format=f"[{rank}] %(message)s")
    path = Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / "merges.json"
    if rank == 0:
        build(path)
    dist.barrier()
    rules = [tuple(p) for p in json.loads(path.read_text())]
    data = encode(corpus(100 + rank, words=512), rules)
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Embedding(256, 16), nn.Flatten(), nn.Linear(128, 2)))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for lo in range(0, len(data), 32):
        batch = data[lo:lo + 32]
        loss = nn.functional.cross_entropy(model(batch), (batch.count_nonzero(1) > 4).long())
        opt.zero_grad()
        loss.backward()
        opt.step()
    log.info("loss %.3f", loss.item())
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
