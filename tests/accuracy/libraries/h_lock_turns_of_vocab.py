# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = ["filelock"]
# outcome = "healthy"
# source = "https://github.com/mosaicml/llm-foundry/pull/716"
# ///
"""Data preparation in turns under a file lock: each rank tokenises its part (some seconds) while the others wait for the lock; then short training.
Slow to start, but everyone gets a turn."""
import json
import logging
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from filelock import FileLock
from torch import nn

log = logging.getLogger("prepare")


@dataclass
class PrepConfig:
    folder: Path = Path("prepared")
    documents: int = 40
    per_document: float = 0.06
    steps: int = 10
    hidden: int = 8


class Preparer:
    def __init__(self, cfg: PrepConfig, rank: int):
        self.cfg, self.rank = cfg, rank
        cfg.folder.mkdir(exist_ok=True)
        self.path = cfg.folder / f"part{rank}.json"
        self.lock = FileLock(str(cfg.folder / ".tokenizer.lock"))

    def tokenise(self, n):
        time.sleep(self.cfg.per_document)
        return [(n * k + self.rank) % 50 for k in range(10)]

    def run(self):
        with self.lock:
            if not self.path.exists():
                rows = [self.tokenise(n) for n in range(self.cfg.documents)]
                self.path.write_text(json.dumps(rows))
                log.info("[rank %d] part written", self.rank)
        return json.loads(self.path.read_text())


class Trainer:
    def __init__(self, cfg: PrepConfig, rows):
        torch.manual_seed(0)
        self.cfg, self.rows = cfg, rows
        self.model = nn.EmbeddingBag(50, cfg.hidden)
        self.opt = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def fit(self):
        for step in range(self.cfg.steps):
            loss = self.model(torch.tensor([self.rows[step % len(self.rows)]])).pow(2).mean()
            self.opt.zero_grad()
            loss.backward()
            dist.all_reduce(self.model.weight.grad)
            self.opt.step()
        return loss.item()


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    cfg, rank = PrepConfig(), dist.get_rank()
    rows = Preparer(cfg, rank).run()
    dist.barrier()
    loss = Trainer(cfg, rows).fit()
    log.info("[rank %d] loss %.4f", rank, loss)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
