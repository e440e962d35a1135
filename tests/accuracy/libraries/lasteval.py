# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = ["accelerate"]
# outcome = "hang"
# causes_any = ["HD102", "HD101", "HD106", "HD109"]
# culprits_any = [[3], [0, 1, 2]]
# lines = [56, 77]
# branch = ["batch in self._eval_dl", "self._eval_dl"]
# source = "https://github.com/Chris-hughes10/pytorch-accelerated/pull/53"
# ///
"""A small callback trainer on top of accelerate, in the manner of pytorch-accelerated."""
import logging
from dataclasses import dataclass

import torch
from accelerate import Accelerator, DataLoaderConfiguration
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

log = logging.getLogger("pta")


@dataclass
class RunConfig:
    epochs: int = 3
    train_batch: int = 8
    eval_batch: int = 5
    features: int = 10


class RunHistory:
    def __init__(self):
        self.rows = []

    def add(self, **row):
        self.rows.append(row)


class Trainer:
    def __init__(self, model, loss_fn, optimizer, config):
        kwargs = DataLoaderConfiguration(even_batches=False)
        self.accelerator = Accelerator(cpu=True, dataloader_config=kwargs)
        self.model, self.loss_fn, self.optimizer, self.config = model, loss_fn, optimizer, config
        self.history = RunHistory()

    def _prepare(self, train_ds, eval_ds):
        train_dl = DataLoader(train_ds, batch_size=self.config.train_batch, shuffle=True, drop_last=True)
        eval_dl = DataLoader(eval_ds, batch_size=self.config.eval_batch)
        (self.model, self.optimizer, self._train_dl, self._eval_dl) = self.accelerator.prepare(
            self.model, self.optimizer, train_dl, eval_dl)

    def gather(self, tensor, padding_value=None):
        if padding_value is not None:
            tensor = self.accelerator.pad_across_processes(tensor, dim=0, pad_index=padding_value)
        return self.accelerator.gather(tensor)

    def train(self, train_ds, eval_ds):
        self._prepare(train_ds, eval_ds)
        for epoch in range(self.config.epochs):
            self._run_train_epoch()
            metrics = self._run_eval_epoch()
            self.history.add(epoch=epoch, **metrics)
            self.accelerator.wait_for_everyone()

    def _run_train_epoch(self):
        self.model.train()
        for x, y in self._train_dl:
            self.optimizer.zero_grad()
            loss = self.loss_fn(self.model(x), y)
            self.accelerator.backward(loss)
            self.optimizer.step()

    def _run_eval_epoch(self):
        self.model.eval()
        seen, hits = 0, 0
        for batch in self._eval_dl:
            pred, target = self.calculate_eval_batch(batch)
            valid = target >= 0
            seen += int(valid.sum())
            hits += int((pred == target)[valid].sum())
        return {"accuracy": hits / max(seen, 1), "seen": seen}

    def calculate_eval_batch(self, batch):
        x, y = batch
        with torch.no_grad():
            pred = self.model(x).argmax(-1)
        return self.gather(pred, padding_value=-1), self.gather(y, padding_value=-1)


def synthetic(n, features, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, features, generator=g)
    return TensorDataset(x, (x[:, 0] * x[:, 1] > 0).long())


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    set_seed(6)
    cfg = RunConfig()
    model = nn.Sequential(nn.Linear(cfg.features, 16), nn.ReLU(), nn.Linear(16, 2))
    trainer = Trainer(model, nn.CrossEntropyLoss(), torch.optim.Adam(model.parameters(), 1e-2), cfg)
    trainer.train(synthetic(256, cfg.features, 0), synthetic(72, cfg.features, 1))
    log.info("%s", trainer.history.rows)


if __name__ == "__main__":
    main()
