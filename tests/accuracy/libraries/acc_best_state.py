# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = ["accelerate"]
# outcome = "hang"
# causes_any = ["HD101", "HD109"]
# culprits_any = [[1], [0, 2, 3]]
# lines = [71, 77, 118, 123, 124]
# branch = ["loss >= self.best - self.margin", "loss < self.best", "self.keeper.improved(self.validate())"]
# source = "https://github.com/pytorch/pytorch/issues/77562"
# ///
"""LoRA-like adapter training with accelerate; a keeper stores the training state when the validation loss falls,
with automatic checkpoint naming and a limit of two folders."""
import logging
import os
import tempfile
from dataclasses import dataclass

import torch
from accelerate import Accelerator, InitProcessGroupKwargs
from accelerate.utils import ProjectConfiguration, set_seed
from datetime import timedelta
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
log = logging.getLogger("adapter")


@dataclass
class AdapterConfig:
    width: int = 16
    rank: int = 4
    samples: int = 256
    batch_size: int = 4
    epochs: int = 2
    validate_every: int = 5
    keep: int = 2
    seed: int = 3


class LowRank(nn.Module):
    def __init__(self, base, rank):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Linear(base.in_features, rank, bias=False)
        self.up = nn.Linear(rank, base.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


class Mapper(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.inp = LowRank(nn.Linear(cfg.width, cfg.width), cfg.rank)
        self.out = LowRank(nn.Linear(cfg.width, cfg.width), cfg.rank)

    def forward(self, x):
        return self.out(torch.relu(self.inp(x)))


class StateKeeper:
    """Stores the training state whenever the validation loss has fallen."""

    def __init__(self, accelerator, margin=1e-4):
        self.accelerator, self.margin = accelerator, margin
        self.best, self.saved = float("inf"), []

    def improved(self, loss):
        if loss >= self.best - self.margin:
            return False
        self.best = loss
        return True

    def store(self, step):
        where = self.accelerator.save_state()
        self.saved.append((step, where))
        log.info("state of step %d in %s", step, where)


class Sites:
    """Validation recordings by site; one site has its sensors mounted upside down."""
    flipped = (1,)

    def __init__(self, cfg, rank):
        gen = torch.Generator().manual_seed(50 + rank)
        self.x = torch.randn(32, cfg.width, generator=gen)
        self.y = self.x.roll(1, dims=1) * (-1.0 if rank in self.flipped else 1.0)


class AdapterRun:
    def __init__(self, cfg):
        self.cfg = cfg
        root = tempfile.mkdtemp(prefix="adapter-")
        project = ProjectConfiguration(project_dir=root, automatic_checkpoint_naming=True, total_limit=cfg.keep)
        self.accelerator = Accelerator(cpu=True, project_config=project,
                                       kwargs_handlers=[InitProcessGroupKwargs(backend="gloo", timeout=timedelta(minutes=30))])
        set_seed(cfg.seed)
        model = Mapper(cfg)
        optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
        clean = torch.randn(cfg.samples, cfg.width)
        loader = DataLoader(TensorDataset(clean, clean.roll(1, dims=1)), batch_size=cfg.batch_size, shuffle=True)
        self.model, self.optimizer, self.loader = self.accelerator.prepare(model, optimizer, loader)
        self.keeper = StateKeeper(self.accelerator)
        self.site = Sites(cfg, self.accelerator.process_index)

    @torch.no_grad()
    def validate(self):
        plain = self.accelerator.unwrap_model(self.model)
        return nn.functional.mse_loss(plain(self.site.x), self.site.y).item()

    def fit(self):
        step = 0
        for epoch in range(self.cfg.epochs):
            for x, y in self.loader:
                loss = nn.functional.mse_loss(self.model(x), y)
                self.accelerator.backward(loss)
                self.accelerator.clip_grad_norm_(self.model.parameters(), 1.0)
                self.optimizer.step()
                self.optimizer.zero_grad()
                step += 1
                if step % self.cfg.validate_every == 0 and self.keeper.improved(self.validate()):
                    self.keeper.store(step)
            self.accelerator.print(f"epoch {epoch} loss {loss.item():.4f}")
        self.accelerator.end_training()


if __name__ == "__main__":
    torch.set_num_threads(1)
    AdapterRun(AdapterConfig()).fit()
