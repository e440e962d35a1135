# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "hang"
# causes_any = ["HD102", "HD109"]
# culprits = [3]
# lines = [50, 69, 72, 73, 74]
# branch = ["spent", "budget", "for batch in", "exhausted"]
# source = "https://github.com/huggingface/accelerate/issues/1369"
# ///
"""accelerate with dispatch_batches: rank 0 reads and hands out the batches. The budget of tokens is counted per process; the
process whose slices hold longer rows reaches it first and leaves the loop."""
import os
import warnings
from dataclasses import dataclass

import torch
from accelerate import Accelerator, DataLoaderConfiguration
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

warnings.filterwarnings("ignore")


@dataclass
class RunConfig:
    token_budget: int = 150
    batch_size: int = 8
    width: int = 12
    log_every: int = 100


class Stream(IterableDataset):
    """The rows' lengths differ; every fourth pair of rows is long."""

    def __iter__(self):
        for i in range(400):
            long = (i % 8) >= 6
            yield {"x": torch.full((12,), float(i % 5)), "length": torch.tensor(20 if long else 8)}


class Budget:
    def __init__(self, limit):
        self.limit, self.spent = limit, 0

    def spend(self, lengths):
        self.spent += int(lengths.sum())

    @property
    def exhausted(self):
        return self.spent >= self.limit


class Trainer:
    def __init__(self, cfg):
        self.cfg = cfg
        self.accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(dispatch_batches=True, split_batches=True))
        model = nn.Linear(cfg.width, 1)
        loader = DataLoader(Stream(), batch_size=cfg.batch_size)
        self.model, self.optimizer, self.loader = self.accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.01), loader)
        self.budget = Budget(cfg.token_budget)

    def step(self, batch):
        loss = self.model(batch["x"]).square().mean()
        self.accelerator.backward(loss)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def train(self):
        for batch in self.loader:
            self.step(batch)
            self.budget.spend(batch["length"])
            if self.budget.exhausted:
                break
        self.accelerator.wait_for_everyone()


if __name__ == "__main__":
    os.environ.setdefault("ACCELERATE_USE_CPU", "true")
    Trainer(RunConfig()).train()
