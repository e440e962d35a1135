# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 2"
# requires = ["lightning"]
# outcome = "hang"
# causes_any = ["HD101", "HD111", "HD109"]
# culprits = [0]
# lines = [70, 71, 76]
# branch = ["not bool(keep.any())", "keep.any()"]
# source = "https://github.com/Lightning-AI/pytorch-lightning/issues/5243"
# ///
"""Lesion scorer on patches; patches without an annotation give no loss."""
import logging
import os
from dataclasses import dataclass, field

import lightning.pytorch as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
log = logging.getLogger("lesion")


@dataclass
class Hparams:
    patches: int = 320
    batch: int = 8
    channels: int = 3
    lr: float = 1e-2
    epochs: int = 4
    unlabelled_runs: list = field(default_factory=lambda: [(208, 224)])


class PatchFolder(Dataset):
    """Patches in the order of the slides they come from (slides are read in order)."""

    def __init__(self, hp: Hparams):
        g = torch.Generator().manual_seed(5)
        self.img = torch.randn(hp.patches, hp.channels, 12, 12, generator=g)
        self.score = torch.rand(hp.patches, generator=g)
        for lo, hi in hp.unlabelled_runs:
            self.score[lo:hi:2] = float("nan")

    def __len__(self):
        return len(self.score)

    def __getitem__(self, i):
        return self.img[i], self.score[i]


class LesionModule(pl.LightningModule):
    def __init__(self, hp: Hparams):
        super().__init__()
        self.hp = hp
        self.features = nn.Sequential(
            nn.Conv2d(hp.channels, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(2)
        )
        self.out = nn.Linear(32, 1)
        self.seen = 0
        self.automatic_optimization = False

    def forward(self, x):
        return self.out(self.features(x).flatten(1)).squeeze(-1)

    def training_step(self, batch, batch_idx):
        images, target = batch
        keep = torch.isfinite(target)
        predicted = self(images)
        if not bool(keep.any()):
            return None
        loss = nn.functional.mse_loss(predicted[keep], target[keep])
        self.seen += int(keep.sum())
        opt = self.optimizers()
        opt.zero_grad()
        self.manual_backward(loss)
        opt.step()
        self.log("train/mse", loss, prog_bar=False)
        return {"mse": loss.detach()}

    def on_train_epoch_end(self):
        log.info("epoch %d, %d labelled patches on rank %d", self.current_epoch, self.seen, self.global_rank)

    def configure_optimizers(self):
        opt = torch.optim.SGD(self.parameters(), lr=self.hp.lr, momentum=0.9)
        return {"optimizer": opt, "lr_scheduler": torch.optim.lr_scheduler.StepLR(opt, 2, 0.5)}


class PatchData(pl.LightningDataModule):
    def __init__(self, hp: Hparams):
        super().__init__()
        self.hp = hp

    def setup(self, stage=None):
        self.train = PatchFolder(self.hp)

    def train_dataloader(self):
        sampler = torch.utils.data.DistributedSampler(
            self.train, num_replicas=self.trainer.world_size, rank=self.trainer.global_rank, shuffle=False
        )
        return DataLoader(self.train, batch_size=self.hp.batch, sampler=sampler)


def main():
    hp = Hparams()
    pl.seed_everything(3, workers=False)
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
        strategy="ddp",
        max_epochs=hp.epochs,
        use_distributed_sampler=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        logger=False,
    )
    trainer.fit(LesionModule(hp), datamodule=PatchData(hp))


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    main()
