# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["lightning"]
# outcome = "hang"
# causes_any = ["HD109", "HD101", "HD102"]
# culprits = [2]
# lines = [65, 66]
# branch = ["self.by_source.items()", "sorted(self.by_source.items())"]
# source = "https://github.com/Lightning-AI/pytorch-lightning/issues/19106"
# ///
"""Lightning module that reports its validation loss per data source with sync_dist; the validation part of one rank holds no
row of one source."""
import os
from collections import defaultdict

import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
from lightning.pytorch.strategies import DDPStrategy
from datetime import timedelta
from torch.utils.data import DataLoader, Dataset

SOURCES = ["books", "legal", "news", "wiki"]


class Rows(Dataset):
    def __init__(self, n, seed, val=False):
        g = torch.Generator().manual_seed(seed)
        self.x = torch.randn(n, 8, generator=g)
        self.y = self.x.sum(1, keepdim=True)
        self.source = torch.randint(0, len(SOURCES), (n,), generator=g)
        if val:
            # rows are interleaved by the exporter: every third row goes to the same reader
            self.source[2::3] = self.source[2::3].where(self.source[2::3] != 1, torch.tensor(3))

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.y[i], self.source[i]


class Mixture(L.LightningModule):
    def __init__(self, hidden=16, lr=1e-2):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(nn.Linear(8, hidden), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Linear(hidden, 1))
        self.by_source = defaultdict(list)

    def training_step(self, batch, batch_idx):
        x, y, _ = batch
        loss = F.mse_loss(self.net(x), y)
        self.log("train/loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y, source = batch
        errors = F.mse_loss(self.net(x), y, reduction="none").squeeze(1)
        for error, s in zip(errors, source.tolist()):
            self.by_source[SOURCES[s]].append(error)
        self.log("val/loss", errors.mean(), sync_dist=True, batch_size=len(x))

    def on_validation_epoch_end(self):
        for name, errors in sorted(self.by_source.items()):
            self.log(f"val/{name}", torch.stack(errors).mean(), sync_dist=True)
        self.by_source.clear()

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=self.hparams.lr)
        return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 2)}


class Data(L.LightningDataModule):
    def __init__(self, batch_size=8):
        super().__init__()
        self.batch_size = batch_size

    def setup(self, stage=None):
        self.train, self.val = Rows(240, 0), Rows(96, 1, val=True)

    def train_dataloader(self):
        return DataLoader(self.train, batch_size=self.batch_size, shuffle=True)

    def val_dataloader(self):
        return DataLoader(self.val, batch_size=self.batch_size)


def main():
    torch.set_num_threads(1)
    L.seed_everything(3, workers=True)
    trainer = L.Trainer(accelerator="cpu", devices=3, max_epochs=4, num_sanity_val_steps=0, logger=False, enable_checkpointing=False,
                        strategy=DDPStrategy(process_group_backend="gloo", timeout=timedelta(minutes=30)),
                        enable_progress_bar=False, enable_model_summary=False, check_val_every_n_epoch=2,
                        default_root_dir=os.environ.get("TMPDIR", "/tmp"))
    trainer.fit(Mixture(), datamodule=Data())


if __name__ == "__main__":
    main()
