# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["accelerate"]
# outcome = "hang"
# causes_any = ["HD103", "HD101", "HD102", "HD109", "HD106"]
# culprits = [0]
# lines = [100, 42, 37]
# branch = ["except KeyboardInterrupt", "self.misses == self.patience", "value < self.best - self.threshold"]
# source = "https://github.com/skorch-dev/skorch/issues/952"
# ///
"""A scikit-learn style net on top of accelerate, with callbacks at the end of every epoch."""
import logging
import os
from dataclasses import dataclass, field

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

log = logging.getLogger("net")


@dataclass
class Patience:
    """Ends the training when the monitored value has not improved for some epochs."""

    monitor: str = "valid_loss"
    patience: int = 3
    threshold: float = 1e-3
    best: float = float("inf")
    misses: int = 0

    def on_epoch_end(self, net):
        value = net.history[-1][self.monitor]
        if value < self.best - self.threshold:
            self.best = value
            self.misses = 0
        else:
            self.misses += 1
        if self.misses == self.patience:
            raise KeyboardInterrupt(f"{self.monitor} has not improved for {self.misses} epochs")


@dataclass
class PrintLog:
    columns: tuple = ("epoch", "train_loss", "valid_loss")
    rows: list = field(default_factory=list)

    def on_epoch_end(self, net):
        self.rows.append([net.history[-1][c] for c in self.columns])
        log.info("  ".join(f"{v:.4f}" for v in self.rows[-1]))


class AcceleratedNet:
    def __init__(self, module, accelerator, callbacks, max_epochs=40, lr=0.02, batch_size=12):
        self.accelerator = accelerator
        self.callbacks = callbacks
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.module = module
        self.optimizer = torch.optim.SGD(module.parameters(), lr=lr)
        self.history = []

    def initialize(self, train, valid):
        prepare = self.accelerator.prepare
        self.module, self.optimizer, self.loader = prepare(
            self.module, self.optimizer, DataLoader(train, batch_size=self.batch_size, shuffle=True))
        self.valid = valid
        return self

    def run_train(self):
        self.module.train()
        losses = []
        for x, y in self.loader:
            loss = nn.functional.mse_loss(self.module(x), y)
            self.accelerator.backward(loss)
            self.optimizer.step()
            self.optimizer.zero_grad()
            losses.append(loss.item())
        return sum(losses) / len(losses)

    @torch.no_grad()
    def run_valid(self):
        self.module.eval()
        x, y = self.valid
        return nn.functional.mse_loss(self.module(x), y).item()

    def fit_loop(self):
        for epoch in range(self.max_epochs):
            self.history.append({"epoch": epoch, "train_loss": self.run_train(), "valid_loss": self.run_valid()})
            for callback in self.callbacks:
                callback.on_epoch_end(self)

    def fit(self, train, valid):
        self.initialize(train, valid)
        try:
            self.fit_loop()
        except KeyboardInterrupt as reason:
            log.info("stopped: %s", reason)
        self.accelerator.wait_for_everyone()
        return self.accelerator.unwrap_model(self.module)


SOIL = (-0.4, 1.0, 0.9)


def field_trial(plot):
    """Every worker validates on the plots of its own farm."""
    g = torch.Generator().manual_seed(70 + plot)
    x = torch.randn(60, 6, generator=g)
    return x, SOIL[plot] * x.sum(-1, keepdim=True)


def main():
    logging.basicConfig(level=logging.INFO)
    accelerator = Accelerator(cpu=True)
    set_seed(5)
    x = torch.randn(720, 6)
    train = TensorDataset(x, x.sum(-1, keepdim=True))
    net = AcceleratedNet(nn.Linear(6, 1), accelerator, [PrintLog(), Patience()], lr=0.002)
    model = net.fit(train, field_trial(int(os.environ["RANK"])))
    if accelerator.is_main_process:
        log.info("weights %s", [round(v, 3) for v in model.weight.flatten().tolist()])
    accelerator.end_training()


if __name__ == "__main__":
    main()
