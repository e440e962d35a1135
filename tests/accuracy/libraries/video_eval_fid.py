# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["lightning", "torchmetrics"]
# outcome = "hang"
# causes_any = ["HD109", "HD101"]
# culprits = [0]
# lines = [97, 99, 100, 106, 125]
# branch = ["rank_zero_only", "rank == 0"]
# source = "https://github.com/Lightning-AI/torchmetrics/issues/2684"
# ///
"""Trains a tiny video autoencoder with Lightning; a callback judges the reconstructions by a distance between feature statistics."""
import csv
import logging
import os
import pathlib
import tempfile

import lightning as L
import torch
import torch.nn as nn
from lightning.pytorch.utilities import rank_zero_only
from torch.utils.data import DataLoader, Dataset
from torchmetrics import Metric

log = logging.getLogger("video")


class FeatureDistance(Metric):
    """Frechet-like distance between diagonal Gaussians fitted to the features of real and generated clips."""

    def __init__(self, features, **kwargs):
        super().__init__(**kwargs)
        for side in ("real", "fake"):
            self.add_state(f"{side}_sum", torch.zeros(features), dist_reduce_fx="sum")
            self.add_state(f"{side}_sq", torch.zeros(features), dist_reduce_fx="sum")
            self.add_state(f"{side}_n", torch.zeros(()), dist_reduce_fx="sum")

    def update(self, feats, real):
        side = "real" if real else "fake"
        setattr(self, f"{side}_sum", getattr(self, f"{side}_sum") + feats.sum(0))
        setattr(self, f"{side}_sq", getattr(self, f"{side}_sq") + feats.pow(2).sum(0))
        setattr(self, f"{side}_n", getattr(self, f"{side}_n") + len(feats))

    def compute(self):
        mu, var = {}, {}
        for side in ("real", "fake"):
            n = getattr(self, f"{side}_n")
            mu[side] = getattr(self, f"{side}_sum") / n
            var[side] = (getattr(self, f"{side}_sq") / n - mu[side] ** 2).clamp(min=0)
        return (mu["real"] - mu["fake"]).pow(2).sum() + (var["real"].sqrt() - var["fake"].sqrt()).pow(2).sum()


class Clips(Dataset):
    def __init__(self, n, offset):
        self.n, self.offset = n, offset

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        gen = torch.Generator().manual_seed(self.offset + i)
        phase = torch.rand(1, generator=gen) * 6.28
        t = torch.linspace(0, 6.28, 64)
        return torch.sin(t + phase) + 0.1 * torch.randn(64, generator=gen)


class ClipAutoencoder(L.LightningModule):
    def __init__(self, code=8):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, code))
        self.decoder = nn.Sequential(nn.Linear(code, 32), nn.ReLU(), nn.Linear(32, 64))

    def forward(self, x):
        return self.decoder(self.encoder(x))

    def training_step(self, batch, _):
        return (self(batch) - batch).pow(2).mean()

    def validation_step(self, batch, _):
        self.log("val_mse", (self(batch) - batch).pow(2).mean(), on_epoch=True, sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=3e-3)


class ReconstructionJudge(L.Callback):
    """Keeps a table of distances next to the checkpoints; a full report is made every few epochs only."""

    def __init__(self, folder, every=2, clips=24):
        self.folder, self.every, self.clips = folder, every, clips
        self.distance = FeatureDistance(64)
        self.rows = []

    def on_validation_epoch_end(self, trainer, pl_module):
        if trainer.sanity_checking or trainer.current_epoch % self.every != self.every - 1:
            return
        self.preview(trainer, pl_module)

    @rank_zero_only
    def preview(self, trainer, pl_module):
        batch = torch.stack([Clips(self.clips, 9000)[i] for i in range(self.clips)])
        with torch.no_grad():
            rebuilt = pl_module(batch)
        self.distance.update(batch, real=True)
        self.distance.update(rebuilt, real=False)
        score = self.distance.compute()
        self.distance.reset()
        self.rows.append({"epoch": trainer.current_epoch, "distance": round(score.item(), 5)})
        with open(self.folder / "distances.csv", "w", newline="") as f:
            table = csv.DictWriter(f, ["epoch", "distance"])
            table.writeheader()
            table.writerows(self.rows)
        log.info("epoch %d distance %.4f", trainer.current_epoch, score)


def main():
    logging.basicConfig(level=logging.INFO, format=f"[{os.environ['RANK']}] %(message)s")
    folder = pathlib.Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / f"clips-{os.environ['TORCHELASTIC_RUN_ID'][:8]}"
    folder.mkdir(parents=True, exist_ok=True)
    L.seed_everything(4, verbose=False)
    trainer = L.Trainer(
        accelerator="cpu", devices=3, strategy="ddp", max_epochs=6, logger=False, enable_checkpointing=False, default_root_dir=folder,
        enable_progress_bar=False, enable_model_summary=False, callbacks=[ReconstructionJudge(folder)],
    )
    trainer.fit(ClipAutoencoder(), DataLoader(Clips(96, 0), 8, shuffle=True), DataLoader(Clips(24, 5000), 8))


if __name__ == "__main__":
    main()
