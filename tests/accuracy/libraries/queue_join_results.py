# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "hang"
# outcome_any = ["hang", "slow"]
# causes_any = ["HD509"]
# culprits = [1]
# lines = [73, 87, 105]
# source = "https://github.com/jonatanjacobsson/ifcpipeline/pull/28"
# ///
"""Contrastive training with hard-negative mining in child processes.

The parent joins its children before it empties their queue. As long as the results are small that works; in the third round
rank 1's children find more than a pipe holds and cannot end.
"""
import logging
import multiprocessing as mp
from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist

log = logging.getLogger("mine")


@dataclass
class MineConfig:
    rounds: int = 5
    items: int = 600
    dim: int = 12
    miners: int = 2
    margin: float = 0.83
    steps: int = 5


class EmbeddingBank:
    """The embeddings of a rank's slice; a cluster of near duplicates appears in some crawls."""

    def __init__(self, cfg, rank):
        self.cfg, self.rank = cfg, rank

    def snapshot(self, turn):
        rng = np.random.default_rng(100 * turn + self.rank)
        bank = rng.normal(size=(self.cfg.items, self.cfg.dim)).astype("float32")
        if (turn, self.rank) == (2, 1):
            bank[: self.cfg.items // 2] = bank[0] + 0.05 * bank[: self.cfg.items // 2]
        return bank / np.linalg.norm(bank, axis=1, keepdims=True)


def mine(bank, rows, margin, results):
    found = []
    for i in rows:
        scores = bank @ bank[i]
        for j in np.flatnonzero(scores > margin):
            if i < j:
                found.append((int(i), int(j), float(scores[j])))
    results.put(found)


class NegativeMiner:
    def __init__(self, cfg):
        self.cfg = cfg
        self.context = mp.get_context("fork")

    def run(self, bank):
        results = self.context.Queue()
        slices = np.array_split(np.arange(len(bank)), self.cfg.miners)
        children = [self.context.Process(target=mine, args=(bank, rows, self.cfg.margin, results)) for rows in slices]
        for child in children:
            child.start()
        for child in children:
            child.join()
        return [pair for _ in children for pair in results.get()]


class ContrastiveTrainer:
    def __init__(self, cfg):
        self.cfg, self.rank, self.world = cfg, dist.get_rank(), dist.get_world_size()
        torch.manual_seed(0)
        self.proj = torch.nn.Linear(cfg.dim, cfg.dim)
        self.opt = torch.optim.SGD(self.proj.parameters(), lr=0.05)
        self.bank, self.miner = EmbeddingBank(cfg, self.rank), NegativeMiner(cfg)

    def count(self, pairs):
        total = torch.tensor([len(pairs)])
        dist.all_reduce(total)
        return int(total)

    def fit(self, bank, pairs):
        if not pairs:
            pairs = [(0, 1, 1.0)]
        x = torch.from_numpy(bank)
        for step in range(self.cfg.steps):
            i, j, _ = pairs[step % len(pairs)]
            loss = torch.cosine_similarity(self.proj(x[i]), self.proj(x[j]), dim=0)
            self.opt.zero_grad()
            loss.backward()
            for p in self.proj.parameters():
                dist.all_reduce(p.grad)
            self.opt.step()

    def round(self, turn):
        bank = self.bank.snapshot(turn)
        pairs = self.miner.run(bank)
        total = self.count(pairs)
        self.fit(bank, pairs)
        return total


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    trainer = ContrastiveTrainer(MineConfig())
    for turn in range(trainer.cfg.rounds):
        total = trainer.round(turn)
        if trainer.rank == 0:
            log.info("round %d: %d pairs", turn, total)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
