# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "hang"
# causes_any = ["HD109", "HD101"]
# culprits = [1]
# lines = [85, 86, 108]
# branch = ["lesion.any()"]
# source = "https://github.com/Lightning-AI/pytorch-lightning/issues/7129"
# ///
"""Lightning: the Dice of lesions is logged with sync_dist only for crops that hold a lesion. In the third validation the crops of one rank
hold none, so it has a key less to reduce at the end of the epoch."""
import logging
import os
import tempfile
from dataclasses import dataclass

import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

log = logging.getLogger(__name__)


@dataclass
class SegConfig:
    size: int = 12
    crop: int = 6
    scans: int = 32
    batch: int = 2
    epochs: int = 60
    lr: float = 0.02


class Scans(Dataset):
    """Images with a bright square; crops move over the image from epoch to epoch."""

    def __init__(self, cfg, first, validation=False):
        self.cfg, self.first, self.validation, self.epoch = cfg, first, validation, 0

    def __len__(self):
        return 8 if self.validation else self.cfg.scans

    def corner(self, index):
        if self.validation and self.epoch >= 2 and index % 4 == 1:
            return 6, 6
        return 0, 0

    def __getitem__(self, index):
        gen = torch.Generator().manual_seed(self.first + index)
        image = 0.2 * torch.randn(1, self.cfg.size, self.cfg.size, generator=gen)
        mask = torch.zeros_like(image)
        mask[:, 2:5, 2:5] = 1
        image = image + mask
        r, c = self.corner(index)
        window = (slice(None), slice(r, r + self.cfg.crop), slice(c, c + self.cfg.crop))
        return image[window], mask[window]


def dice(guess, truth):
    return 2 * (guess * truth).sum() / (guess.sum() + truth.sum()).clamp(min=1e-6)


class LesionNet(L.LightningModule):
    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        self.net = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 1))

    def training_step(self, batch, index):
        image, mask = batch
        loss = F.binary_cross_entropy_with_logits(self.net(image), mask)
        self.log("train/loss", loss)
        return loss

    def validation_step(self, batch, index):
        image, mask = batch
        logits = self.net(image)
        guess, lesion = (logits > 0).float(), mask > 0
        self.log("val/loss", F.binary_cross_entropy_with_logits(logits, mask), sync_dist=True)
        self.log_scores(guess, mask, lesion)

    def log_scores(self, guess, mask, lesion):
        if lesion.any():
            self.log("val/dice_lesion", dice(guess, mask), sync_dist=True)
        self.log("val/dice_background", dice(1 - guess, 1 - mask), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.cfg.lr)


class MoveCrops(L.Callback):
    def on_validation_epoch_start(self, trainer, pl_module):
        trainer.val_dataloaders.dataset.epoch = trainer.current_epoch


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    cfg = SegConfig()
    L.seed_everything(1)
    train = DataLoader(Scans(cfg, 0), batch_size=cfg.batch, shuffle=True)
    held_out = DataLoader(Scans(cfg, 500, validation=True), batch_size=cfg.batch)
    trainer = L.Trainer(accelerator="cpu", strategy="ddp", devices=int(os.environ["LOCAL_WORLD_SIZE"]), max_epochs=cfg.epochs, logger=False,
                        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0,
                        callbacks=[MoveCrops()], default_root_dir=tempfile.mkdtemp(prefix="lesion-"))
    trainer.fit(LesionNet(cfg), train, held_out)
    print("done", trainer.callback_metrics.get("val/loss"))


if __name__ == "__main__":
    main()
