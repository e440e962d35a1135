# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = ["accelerate"]
# outcome = "healthy"
# source = "https://github.com/huggingface/accelerate/issues/2690"
# ///
"""Accelerate: the main process alone scores the unwrapped model for a long while between two epochs (pure computing),
the other three wait in wait_for_everyone, then training goes on and ends."""
import logging
import time
from dataclasses import dataclass
from datetime import timedelta

import torch
from accelerate import Accelerator, InitProcessGroupKwargs
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
log = logging.getLogger("export")


@dataclass
class ExportConfig:
    features: int = 16
    rows: int = 256
    batch_size: int = 8
    epochs: int = 2
    scoring_seconds: float = 16.0


class Scorer:
    """Bootstrap confidence interval of the error, on one process."""

    def __init__(self, cfg):
        self.cfg = cfg
        self.x = torch.randn(64, cfg.features)

    @torch.no_grad()
    def __call__(self, model):
        model.eval()
        end, draws = time.monotonic() + self.cfg.scoring_seconds, []
        while time.monotonic() < end:
            pick = torch.randint(0, len(self.x), (len(self.x),))
            draws.append((model(self.x[pick]) - self.x[pick].sum(-1, keepdim=True)).pow(2).mean())
        model.train()
        draws = torch.stack(draws)
        return draws.mean().item(), draws.std().item(), len(draws)


def main():
    torch.set_num_threads(1)
    cfg = ExportConfig()
    accelerator = Accelerator(cpu=True, kwargs_handlers=[InitProcessGroupKwargs(backend="gloo", timeout=timedelta(minutes=30))])
    torch.manual_seed(0)
    x = torch.randn(cfg.rows, cfg.features)
    model = nn.Sequential(nn.Linear(cfg.features, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    loader = DataLoader(TensorDataset(x, x.sum(-1, keepdim=True)), batch_size=cfg.batch_size, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    scorer = Scorer(cfg)
    for epoch in range(cfg.epochs):
        for a, b in loader:
            loss = nn.functional.mse_loss(model(a), b)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        if accelerator.is_main_process:
            mean, spread, draws = scorer(accelerator.unwrap_model(model))
            log.info("epoch %d error %.3f +- %.3f (%d draws)", epoch, mean, spread, draws)
        accelerator.wait_for_everyone()
    accelerator.end_training()


if __name__ == "__main__":
    main()
