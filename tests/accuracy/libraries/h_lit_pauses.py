# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "healthy"
# ///
"""Lightning with everything that looks suspicious and is right: rank-zero tables, a slow rank-zero upload, early stopping on a synced value,
conditional logging without sync_dist, checkpoints of all ranks."""
import logging
import os
import tempfile
import time
from dataclasses import dataclass

import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from lightning.pytorch.utilities import rank_zero_only
from torch.utils.data import DataLoader, TensorDataset

log = logging.getLogger("churn")


@dataclass
class ChurnConfig:
    features: int = 8
    rows: int = 360
    batch: int = 12
    epochs: int = 6
    upload_seconds: float = 5.5
    lr: float = 0.02


def table(cfg, seed):
    gen = torch.Generator().manual_seed(seed)
    x = torch.randn(cfg.rows, cfg.features, generator=gen)
    return TensorDataset(x, (x[:, 0] + x[:, 1] > 0).float())


class Churn(L.LightningModule):
    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        self.net = nn.Sequential(nn.Linear(cfg.features, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 1))

    def training_step(self, batch, index):
        x, y = batch
        loss = F.binary_cross_entropy_with_logits(self.net(x).squeeze(-1), y)
        if self.global_rank == 1 and index % 3 == 0:
            self.log("train/rank1_loss", loss, on_step=True, on_epoch=False)
        return loss

    def validation_step(self, batch, index):
        x, y = batch
        logits = self.net(x).squeeze(-1)
        self.log("val/loss", F.binary_cross_entropy_with_logits(logits, y), sync_dist=True)
        self.log("val/accuracy", ((logits > 0) == (y > 0.5)).float().mean(), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.cfg.lr)


class Upload(L.Callback):
    """Sends the table of the worst rows; the bucket is slow."""

    def __init__(self, seconds):
        self.seconds, self.tables = seconds, []

    @rank_zero_only
    def send(self, trainer, pl_module):
        rows = pl_module.net[0].weight.detach().norm(dim=1).topk(3).values.tolist()
        time.sleep(self.seconds)
        self.tables.append((trainer.current_epoch, rows))

    def on_validation_epoch_end(self, trainer, pl_module):
        if trainer.current_epoch == 1:
            self.send(trainer, pl_module)


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    L.seed_everything(5)
    cfg, folder = ChurnConfig(), tempfile.mkdtemp(prefix="churn-")
    trainer = L.Trainer(
        accelerator="cpu", strategy="ddp", devices=int(os.environ["LOCAL_WORLD_SIZE"]), max_epochs=cfg.epochs, logger=False,
        enable_progress_bar=False, enable_model_summary=False, default_root_dir=folder,
        callbacks=[Upload(cfg.upload_seconds), EarlyStopping("val/loss", patience=2), ModelCheckpoint(folder, monitor="val/loss", save_top_k=1)])
    trainer.fit(Churn(cfg), DataLoader(table(cfg, 0), batch_size=cfg.batch, shuffle=True), DataLoader(table(cfg, 1), batch_size=cfg.batch))
    print("best", trainer.checkpoint_callback.best_model_score)


if __name__ == "__main__":
    main()
