# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["lightning"]
# outcome = "hang"
# causes_any = ["HD103", "HD101", "HD106"]
# culprits = [1]
# lines = [62, 63, 91, 104]
# branch = ["except NonFiniteLoss", "torch.isfinite(loss).all()", "NonFiniteLoss"]
# source = "https://github.com/ai2cm/ace/pull/850"
# ///
"""Emulator training with Fabric: one-step forecasts of a small climate state."""
import json
import logging
import os
import tempfile
from dataclasses import asdict, dataclass

import torch
from lightning.fabric import Fabric
from lightning.fabric.strategies import DDPStrategy
from torch import nn
from torch.utils.data import DataLoader, Dataset

log = logging.getLogger("emulator")


class NonFiniteLoss(RuntimeError):
    pass


@dataclass
class RunConfig:
    epochs: int = 3
    lr: float = 1e-3
    batch_size: int = 4
    fields: int = 6
    steps: int = 180


class Reanalysis(Dataset):
    """Consecutive states (t, t+1); fields are normalised by their standard deviation along the window."""

    def __init__(self, cfg):
        g = torch.Generator().manual_seed(8)
        self.state = torch.randn(cfg.steps + 1, cfg.fields, generator=g).cumsum(0) * 0.1
        self.state[98:101, 4] = 0.0

    def __len__(self):
        return len(self.state) - 1

    def __getitem__(self, i):
        lo = max(0, i - 2)
        std = self.state[lo:i + 1].std(0) if i > lo else torch.ones(self.state.shape[1])
        return self.state[i] / std, self.state[i + 1] / std


class Optimization:
    def __init__(self, fabric, model, opt):
        self.fabric, self.model, self.opt = fabric, model, opt

    def _validate_loss(self, loss):
        if not torch.isfinite(loss).all():
            raise NonFiniteLoss(f"loss is {loss.item()}")

    def step(self, x, y):
        loss = nn.functional.mse_loss(self.model(x), y)
        self._validate_loss(loss)
        self.opt.zero_grad()
        self.fabric.backward(loss)
        self.opt.step()
        return loss.detach()


class Emulator:
    def __init__(self, fabric, cfg, out):
        self.fabric, self.cfg, self.out = fabric, cfg, out
        net = nn.Sequential(nn.Linear(cfg.fields, 32), nn.SiLU(), nn.Linear(32, cfg.fields))
        model, opt = fabric.setup(net, torch.optim.Adam(net.parameters(), lr=cfg.lr))
        loader = DataLoader(Reanalysis(cfg), batch_size=cfg.batch_size, shuffle=False)
        self.loader = fabric.setup_dataloaders(loader)
        self.optim = Optimization(fabric, model, opt)
        self.history = []

    def train(self):
        for epoch in range(self.cfg.epochs):
            losses = [self.optim.step(x, y) for x, y in self.loader]
            mean = self.fabric.all_reduce(torch.stack(losses).mean(), reduce_op="mean")
            self.history.append(mean.item())

    def write_summary(self, status):
        self.fabric.barrier("summary")
        if self.fabric.is_global_zero:
            with open(os.path.join(self.out, "summary.json"), "w") as f:
                json.dump({"status": status, "history": self.history, "config": asdict(self.cfg)}, f)


def run(fabric):
    out = tempfile.mkdtemp(prefix="ace_%s_" % os.environ.get("MASTER_PORT", "0"))
    fabric.seed_everything(2)
    job = Emulator(fabric, RunConfig(), out)
    status = "completed"
    try:
        job.train()
    except NonFiniteLoss as err:
        log.error("stopping early: %s", err)
        status = "diverged"
    job.write_summary(status)
    log.info("run %s", status)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    fab = Fabric(accelerator="cpu", devices=3, strategy=DDPStrategy(process_group_backend="gloo"))
    fab.launch()
    run(fab)
