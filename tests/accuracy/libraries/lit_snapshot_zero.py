# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = ["lightning"]
# outcome = "hang"
# causes_any = ["HD101", "HD109"]
# culprits = [0]
# lines = [65, 67, 70]
# branch = ["rank_zero_only"]
# source = "https://github.com/ray-project/ray/issues/56997"
# ///
"""Forecasting model in Lightning with a callback that keeps the snapshot with the best smoothed loss and a small
index file beside it."""
import json
import os
import tempfile
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.strategies import DDPStrategy
from lightning.pytorch.utilities import rank_zero_only
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


@dataclass
class ForecastConfig:
    history: int = 16
    horizon: int = 4
    series: int = 400
    batch_size: int = 4
    warmup: int = 6
    every: int = 4
    smoothing: float = 0.7


class SnapshotIndex:
    """index.json with one row per snapshot."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.rows = []

    def add(self, step, loss, path):
        self.rows.append({"step": step, "loss": round(loss, 5), "path": str(path)})
        (self.folder / "index.json").write_text(json.dumps(self.rows, indent=1))


class BestSnapshots(Callback):
    def __init__(self, folder, cfg):
        self.folder, self.cfg = Path(folder), cfg
        self.index = SnapshotIndex(folder)
        self.smooth, self.best = None, float("inf")

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        loss = trainer.strategy.reduce(outputs["loss"].detach(), reduce_op="mean").item()
        a = self.cfg.smoothing
        self.smooth = loss if self.smooth is None else a * self.smooth + (1 - a) * loss
        if trainer.global_step >= self.cfg.warmup and trainer.global_step % self.cfg.every == 0:
            if self.smooth < self.best:
                self.best = self.smooth
                self.publish(trainer, self.smooth)

    @rank_zero_only
    def publish(self, trainer, loss):
        path = self.folder / f"step{trainer.global_step}.ckpt"
        trainer.save_checkpoint(path)
        self.index.add(trainer.global_step, loss, path)


class Forecaster(L.LightningModule):
    def __init__(self, cfg):
        super().__init__()
        self.save_hyperparameters(asdict(cfg))
        self.encoder = nn.GRU(1, 12, batch_first=True)
        self.head = nn.Linear(12, cfg.horizon)

    def forward(self, past):
        _, last = self.encoder(past[..., None])
        return self.head(last[-1])

    def training_step(self, batch, batch_idx):
        past, future = batch
        loss = nn.functional.smooth_l1_loss(self(past), future)
        self.log("train_loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=5e-3)


class SeriesData(L.LightningDataModule):
    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg

    def setup(self, stage=None):
        t = torch.arange(self.cfg.history + self.cfg.horizon).float()
        phase = torch.linspace(0, 6.28, self.cfg.series)[:, None]
        waves = torch.sin(t[None] / 3 + phase)
        self.data = TensorDataset(waves[:, :self.cfg.history], waves[:, self.cfg.history:])

    def train_dataloader(self):
        return DataLoader(self.data, batch_size=self.cfg.batch_size)


def main():
    torch.set_num_threads(1)
    L.seed_everything(11, verbose=False)
    cfg = ForecastConfig()
    folder = tempfile.mkdtemp(prefix="forecast-")
    trainer = L.Trainer(accelerator="cpu", devices=int(os.environ["WORLD_SIZE"]), max_epochs=4, logger=False, enable_progress_bar=False,
                        enable_model_summary=False, enable_checkpointing=False, callbacks=[BestSnapshots(folder, cfg)],
                        strategy=DDPStrategy(process_group_backend="gloo", timeout=timedelta(minutes=30)))
    trainer.fit(Forecaster(cfg), datamodule=SeriesData(cfg))


if __name__ == "__main__":
    main()
