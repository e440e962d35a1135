# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["accelerate"]
# outcome = "hang"
# causes_any = ["HD109", "HD101", "HD102"]
# culprits = [2]
# lines = [99, 105]
# branch = ["self.meter.exhausted()"]
# source = "https://github.com/huggingface/accelerate/pull/1940"
# ///
"""Fine-tunes a tiny sequence model with accelerate until a token budget is used up on any of the processes."""
import logging
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object, set_seed
from torch import nn
from torch.utils.data import DataLoader, Dataset

log = logging.getLogger("budget")


@dataclass
class Budget:
    tokens_per_process: int = 2600
    epochs: int = 4
    batch_size: int = 4


class Dialogues(Dataset):
    """Conversations of one partner; chat transcripts are longer than search sessions."""
    LENGTHS = {"search": (6, 14), "mail": (10, 22), "chat": (24, 48)}

    def __init__(self, partner, n=160):
        gen = torch.Generator().manual_seed(len(partner))
        lo, hi = self.LENGTHS[partner]
        self.rows = [torch.randint(1, 64, (int(torch.randint(lo, hi, (1,), generator=gen)),), generator=gen) for _ in range(n)]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def collate(rows):
    width = 64
    out = torch.zeros(len(rows), width, dtype=torch.long)
    for i, row in enumerate(rows):
        out[i, :len(row)] = row[:width]
    return out


class TokenMeter:
    def __init__(self, limit):
        self.limit, self.used, self.steps = limit, 0, 0

    def add(self, batch):
        self.used += int((batch != 0).sum())
        self.steps += 1

    def exhausted(self):
        return self.used >= self.limit

    def row(self):
        return {"pid": os.getpid(), "used": self.used, "steps": self.steps}


class Runner:
    def __init__(self, budget, partner):
        self.accelerator = Accelerator(cpu=True)
        set_seed(11)
        self.budget = budget
        self.meter = TokenMeter(budget.tokens_per_process)
        self.out = Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / "budget-run"
        net = nn.Sequential(nn.Embedding(64, 24), nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 64))
        self.model, self.opt = self.accelerator.prepare(net, torch.optim.SGD(net.parameters(), lr=0.05))
        self.loader = DataLoader(Dialogues(partner), batch_size=budget.batch_size, collate_fn=collate)

    def train_step(self, batch):
        logits = self.model(batch[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten(), ignore_index=0)
        self.accelerator.backward(loss)
        self.opt.step()
        self.opt.zero_grad()
        self.meter.add(batch)
        return loss.item()

    def fit(self):
        for epoch in range(self.budget.epochs):
            for batch in self.loader:
                loss = self.train_step(batch)
                if self.meter.exhausted():
                    self.accelerator.set_trigger()
                if self.meter.exhausted() or self.accelerator.check_trigger():
                    log.info("token budget reached in epoch %d (%s), loss %.3f", epoch, self.meter.row(), loss)
                    return epoch
        return self.budget.epochs

    def finish(self, epoch):
        rows = gather_object([self.meter.row()])
        if self.accelerator.is_main_process:
            log.info("epoch %d, tokens per process: %s", epoch, [r["used"] for r in rows])
        self.accelerator.save_state(str(self.out))


def main():
    rank = int(os.environ["RANK"])
    logging.basicConfig(level=logging.INFO, format=f"[{rank}] %(message)s")
    runner = Runner(Budget(), list(Dialogues.LENGTHS)[rank])
    runner.finish(runner.fit())
    runner.accelerator.end_training()


if __name__ == "__main__":
    main()
