# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["lightning", "torchmetrics"]
# outcome = "healthy"
# source = "https://github.com/Lightning-AI/pytorch-lightning/issues/10947"
# ///
"""Lightning: validation sets of different length per process without collectives in the steps, one process validates
much longer than the others; metrics are synchronised at the epoch's end by every process."""
import os
import tempfile
import time
from datetime import timedelta

import lightning as L
import torch
from lightning.pytorch.strategies import DDPStrategy
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics import MeanMetric


def spin(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(i * i for i in range(3000))


class Regressor(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 1))
        self.error = MeanMetric()

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = nn.functional.mse_loss(self.net(x), y)
        self.log("train/loss", loss, sync_dist=True)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.error.update((self.net(x) - y).abs().mean())
        spin(0.5)

    def on_validation_epoch_end(self):
        self.log("val/error", self.error.compute(), rank_zero_only=True)
        self.error.reset()

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-2)


def rows(count, seed):
    gen = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 6, generator=gen)
    return TensorDataset(x, x[:, :1])


def main():
    torch.set_num_threads(1)
    rank = int(os.environ["RANK"])
    L.seed_everything(0, verbose=False)
    trainer = L.Trainer(accelerator="cpu", devices=int(os.environ["WORLD_SIZE"]), max_epochs=2, logger=False, enable_progress_bar=False,
                        enable_model_summary=False, enable_checkpointing=False, use_distributed_sampler=False, num_sanity_val_steps=0,
                        default_root_dir=tempfile.gettempdir(),
                        strategy=DDPStrategy(process_group_backend="gloo", timeout=timedelta(minutes=30)))
    val_rows = {0: 8, 1: 104, 2: 12}[rank]
    trainer.fit(Regressor(), DataLoader(rows(40, rank), batch_size=4), DataLoader(rows(val_rows, 10 + rank), batch_size=4))


if __name__ == "__main__":
    main()
