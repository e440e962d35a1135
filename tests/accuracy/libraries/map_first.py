# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = ["accelerate", "datasets"]
# outcome = "hang"
# causes_any = ["HD101", "HD106", "HD109"]
# culprits_any = [[0]]
# lines = [60, 67, 71, 72, 111]
# branch = ["lost > self.cfg.tolerated * len(tokens)", "main_process_first()", "not is_main"]
# source = "https://github.com/foundation-model-stack/fms-hf-tuning/pull/458"
# ///
"""Packing of a pre-training corpus, stage by stage, under accelerate's main_process_first.

The second stage loses too many long documents, so the packer rebalances over the ranks: an accelerate gather inside the part
that rank 0 goes through while the others still wait at its entrance.
"""
import logging
import random
from dataclasses import dataclass, field

import torch
from accelerate import Accelerator
from accelerate.utils import InitProcessGroupKwargs
from datasets import Dataset, disable_progress_bars
from datetime import timedelta

log = logging.getLogger("pack")


@dataclass
class PackConfig:
    stages: list = field(default_factory=lambda: ["wiki", "books", "code"])
    docs: int = 120
    max_len: int = 48
    tolerated: float = 0.2
    hidden: int = 16
    steps_per_stage: int = 6


def synthetic_stage(name, count):
    rng = random.Random(name)
    longest = {"wiki": 40, "books": 90, "code": 60}[name]
    return Dataset.from_dict({"text": ["x" * rng.randint(8, longest) for _ in range(count)]})


def encode(batch):
    return {"ids": [[(i * 7) % 31 for i in range(len(t))] for t in batch["text"]]}


def fits(row, max_len):
    return len(row["ids"]) <= max_len


class CorpusPacker:
    def __init__(self, accelerator, cfg):
        self.acc, self.cfg = accelerator, cfg
        self.history = {}

    def rebalance(self, rows, lost):
        mine = torch.tensor([len(rows)], device=self.acc.device)
        sizes = self.acc.gather(mine)
        target = int(sizes.min())
        log.info("rebalanced to %d rows (%d lost)", target, lost)
        return rows.select(range(target))

    def build(self, stage):
        raw = synthetic_stage(stage, self.cfg.docs)
        with self.acc.main_process_first():
            tokens = raw.map(encode, batched=True, remove_columns=["text"])
            rows = tokens.filter(fits, fn_kwargs={"max_len": self.cfg.max_len})
            lost = len(tokens) - len(rows)
            if lost > self.cfg.tolerated * len(tokens):
                rows = self.rebalance(rows, lost)
        self.history[stage] = lost
        return rows


class TinyLM(torch.nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.emb = torch.nn.Embedding(32, hidden)
        self.head = torch.nn.Linear(hidden, 32)

    def forward(self, ids):
        return self.head(self.emb(ids))


def train_stage(acc, model, opt, rows, cfg):
    index = acc.process_index
    for step in range(cfg.steps_per_stage):
        ids = rows[(step * acc.num_processes + index) % len(rows)]["ids"]
        x = torch.tensor(ids).unsqueeze(0)
        logits = model(x[:, :-1])
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), x[:, 1:].flatten())
        acc.backward(loss)
        opt.step()
        opt.zero_grad()
    return float(loss.detach())


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    disable_progress_bars()
    cfg = PackConfig()
    acc = Accelerator(cpu=True, kwargs_handlers=[InitProcessGroupKwargs(timeout=timedelta(minutes=30))])
    model = TinyLM(cfg.hidden)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model, opt = acc.prepare(model, opt)
    packer = CorpusPacker(acc, cfg)
    for stage in cfg.stages:
        rows = packer.build(stage)
        loss = train_stage(acc, model, opt, rows, cfg)
        if acc.is_main_process:
            log.info("stage %s: %d rows, loss %.3f", stage, len(rows), loss)
    acc.wait_for_everyone()
    acc.end_training()


if __name__ == "__main__":
    main()
