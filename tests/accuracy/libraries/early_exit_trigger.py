# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["accelerate"]
# outcome = "hang"
# causes_any = ["HD101", "HD106", "HD109"]
# culprits_any = [[2], [0, 1]]
# lines = [39, 68, 71, 82, 85]
# branch = ["self.patience.is_armed and self.acc.check_trigger()", "self.patience.is_armed", "max(self.history) <= self.ceiling"]
# source = "https://github.com/huggingface/accelerate/pull/1940"
# ///
import logging
import os
from collections import deque

import torch
import torch.nn as nn
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, TensorDataset

logging.basicConfig(level=logging.INFO, format="%(asctime)s [r" + os.environ["RANK"] + "] %(message)s")
log = logging.getLogger("tune")


class Patience:
    """Becomes armed when the last `window` losses all were under `ceiling`."""

    def __init__(self, window, ceiling):
        self.window, self.ceiling = window, ceiling
        self.history = deque(maxlen=window)

    def see(self, loss):
        self.history.append(loss)

    @property
    def is_armed(self):
        if len(self.history) < self.window:
            return False
        return max(self.history) <= self.ceiling

    def is_flat(self, tolerance=1e-9):
        return self.is_armed and max(self.history) - min(self.history) < tolerance


class Regressor(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, width), nn.Tanh(), nn.Linear(width, 1))

    def forward(self, x):
        return self.net(x)


class TuneLoop:
    def __init__(self, accelerator, model, opt, loader, patience):
        self.acc, self.patience, self.curve = accelerator, patience, []
        self.model, self.opt, self.loader = accelerator.prepare(model, opt, loader)

    def _step(self, batch):
        x, y = batch
        loss = nn.functional.mse_loss(self.model(x), y)
        self.acc.backward(loss)
        self.opt.step()
        self.opt.zero_grad()
        return loss.item()

    def _mean(self, loss):
        return self.acc.gather(torch.tensor([loss])).mean().item()

    def _should_leave(self):
        return self.patience.is_armed and self.acc.check_trigger()

    def run(self, epochs):
        step = 0
        for epoch in range(epochs):
            for batch in self.loader:
                loss = self._step(batch)
                self.patience.see(loss)
                step += 1
                if self.patience.is_flat():
                    self.acc.set_trigger()
                if self._should_leave():
                    log.info("leaving at step %d", step)
                    return step
                self.curve.append(self._mean(loss))
            log.info("epoch %d loss %.4f", epoch, loss)
        return step


def make_dataset(n=504):
    gen = torch.Generator().manual_seed(9)
    x = torch.randn(n, 6, generator=gen)
    y = x[:, :1] * 0.5
    position = torch.arange(n) % 24
    y = y + (position >= 16).float().unsqueeze(1) * 4.0 * torch.randn(n, 1, generator=gen)
    return TensorDataset(x, y)


def main():
    set_seed(21)
    acc = Accelerator(cpu=True)
    model = Regressor()
    opt = torch.optim.AdamW(model.parameters(), lr=5e-3)
    loader = DataLoader(make_dataset(), batch_size=8, shuffle=False)
    loop = TuneLoop(acc, model, opt, loader, Patience(window=12, ceiling=2.0))
    steps = loop.run(epochs=50)
    acc.wait_for_everyone()
    log.info("%d steps", steps)
    acc.end_training()


if __name__ == "__main__":
    main()
