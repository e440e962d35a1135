# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = ["lightning", "torchmetrics"]
# outcome = "hang"
# causes_any = ["HD109", "HD101"]
# culprits = [1]
# lines = [57, 58, 111]
# branch = ["len(found) == 0 or len(truth) == 0", "len(found) == 0"]
# source = "https://github.com/Lightning-AI/torchmetrics/issues/3336"
# ///
"""Detector validated with Lightning; a custom torchmetrics metric collects one IoU table per image and is computed
at the end of every validation epoch."""
import logging
import os
import tempfile
from dataclasses import dataclass
from datetime import timedelta

import lightning as L
import torch
from lightning.pytorch.strategies import DDPStrategy
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchmetrics import Metric

logging.basicConfig(level=logging.INFO)


@dataclass
class DetConfig:
    features: int = 12
    max_boxes: int = 3
    images: int = 48
    val_images: int = 24
    threshold: float = 0.5


def box_table(a, b):
    """Pairwise 1-d IoU of [start, stop] boxes."""
    left = torch.maximum(a[:, None, 0], b[None, :, 0])
    right = torch.minimum(a[:, None, 1], b[None, :, 1])
    inter = (right - left).clamp(min=0)
    union = (a[:, 1] - a[:, 0])[:, None] + (b[:, 1] - b[:, 0])[None, :] - inter
    return inter / union.clamp(min=1e-6)


class MatchRate(Metric):
    """Share of true boxes that some found box covers with IoU above the threshold."""
    full_state_update = False

    def __init__(self, threshold):
        super().__init__()
        self.threshold = threshold
        self.add_state("tables", default=[], dist_reduce_fx=None)

    def update(self, found, truth):
        if len(found) == 0 or len(truth) == 0:
            return
        self.tables.append(box_table(found, truth).max(dim=0).values.mean().reshape(1))

    def compute(self):
        best = torch.cat([t.reshape(-1) for t in self.tables])
        return (best > self.threshold).float().mean()


class Scenes(Dataset):
    def __init__(self, count, cfg, empty=()):
        gen = torch.Generator().manual_seed(count)
        self.x = torch.randn(count, cfg.features, generator=gen)
        self.boxes = []
        for i in range(count):
            n = 0 if i in empty else 1 + i % cfg.max_boxes
            start = torch.rand(n, generator=gen)
            self.boxes.append(torch.stack([start, start + 0.3], dim=1))

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x[index], self.boxes[index]


def collate(rows):
    return torch.stack([x for x, _ in rows]), [b for _, b in rows]


class Detector(L.LightningModule):
    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        self.net = nn.Sequential(nn.Linear(cfg.features, 16), nn.ReLU(), nn.Linear(16, 2))
        self.match = MatchRate(cfg.threshold)

    def boxes(self, x):
        start, size = self.net(x).sigmoid().unbind(-1)
        return torch.stack([start, start + size], dim=-1)

    def training_step(self, batch, index):
        x, truth = batch
        goal = torch.stack([t[0] if len(t) else torch.tensor([0.4, 0.7]) for t in truth])
        loss = nn.functional.l1_loss(self.boxes(x), goal)
        self.log("train/l1", loss)
        return loss

    def validation_step(self, batch, index):
        x, truth = batch
        for found, boxes in zip(self.boxes(x), truth):
            self.match.update(found[None], boxes)

    def on_validation_epoch_end(self):
        rate = self.match.compute()
        self.match.reset()
        self.log("val/match", rate, rank_zero_only=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05)


def main():
    torch.set_num_threads(1)
    cfg = DetConfig()
    L.seed_everything(1, verbose=False)
    train = DataLoader(Scenes(cfg.images, cfg), batch_size=2, collate_fn=collate)
    val = DataLoader(Scenes(cfg.val_images, cfg, empty={21}), batch_size=2, collate_fn=collate)
    trainer = L.Trainer(accelerator="cpu", devices=int(os.environ["WORLD_SIZE"]), max_epochs=3, logger=False, enable_progress_bar=False,
                        enable_model_summary=False, enable_checkpointing=False, num_sanity_val_steps=0, default_root_dir=tempfile.gettempdir(),
                        strategy=DDPStrategy(process_group_backend="gloo", timeout=timedelta(minutes=30)))
    trainer.fit(Detector(cfg), train, val)


if __name__ == "__main__":
    main()
