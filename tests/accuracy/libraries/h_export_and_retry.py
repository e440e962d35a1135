# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "healthy"
# ///
"""Rank 0 tokenizes for seven seconds while the others wait at a barrier; a failing batch on one rank is agreed on by all; and rank 3 packs
its traces for some seconds after the process group is gone."""
import json
import logging
import tempfile
import time
import zlib
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("prep")


@dataclass
class PrepConfig:
    documents: int = 70
    seconds_each: float = 0.1
    vocab: int = 40
    batch: int = 6
    steps: int = 24
    bad: tuple = ((2, 9), (1, 17))
    lr: float = 0.05


class BadBatch(RuntimeError):
    pass


class TokenCache:
    def __init__(self, cfg, folder):
        self.cfg, self.path = cfg, Path(folder) / "tokens.json"

    def build(self):
        rows = []
        for i in range(self.cfg.documents):
            time.sleep(self.cfg.seconds_each)
            rows.append([(i * 7 + j) % self.cfg.vocab for j in range(12)])
        self.path.write_text(json.dumps(rows))

    def load(self, rank):
        if rank == 0:
            self.build()
        dist.barrier()
        return torch.tensor(json.loads(self.path.read_text()))


class Agreement:
    """All ranks learn whether any of them failed."""

    def __init__(self):
        self.retries = 0

    def ok(self, mine):
        flag = torch.tensor([0 if mine else 1])
        dist.all_reduce(flag, op=dist.ReduceOp.MAX)
        self.retries += int(flag.item())
        return flag.item() == 0


class Trainer:
    def __init__(self, cfg, tokens, rank):
        self.cfg, self.tokens, self.rank = cfg, tokens, rank
        torch.manual_seed(0)
        self.model = DDP(nn.Sequential(nn.Embedding(cfg.vocab, 12), nn.Linear(12, cfg.vocab)))
        self.opt = torch.optim.SGD(self.model.parameters(), lr=cfg.lr)
        self.agreement = Agreement()

    def batch(self, step, attempt):
        if (self.rank, step) in self.cfg.bad and attempt == 0:
            raise BadBatch(f"checksum of block {step}")
        start = (step * self.cfg.batch + self.rank) % (len(self.tokens) - self.cfg.batch)
        return self.tokens[start:start + self.cfg.batch]

    def fetch(self, step):
        for attempt in range(3):
            try:
                rows, mine = self.batch(step, attempt), True
            except BadBatch as err:
                log.warning("rank %d: %s", self.rank, err)
                rows, mine = None, False
            if self.agreement.ok(mine):
                return rows
            time.sleep(0.2)
        raise RuntimeError("giving up")

    def run(self):
        for step in range(self.cfg.steps):
            rows = self.fetch(step)
            logits = self.model(rows[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
        return loss.item()


def pack_traces(rank):
    if rank != 3:
        return 0
    end, size = time.time() + 6, 0
    while time.time() < end:
        size += len(zlib.compress(bytes(range(256)) * 256))
        time.sleep(0.02)
    return size


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, cfg = dist.get_rank(), PrepConfig()
    folder = [tempfile.mkdtemp(prefix="prep-") if rank == 0 else None]
    dist.broadcast_object_list(folder)
    loss = Trainer(cfg, TokenCache(cfg, folder[0]).load(rank), rank).run()
    dist.destroy_process_group()
    log.info("rank %d loss %.3f packed %d", rank, loss, pack_traces(rank))


if __name__ == "__main__":
    main()
