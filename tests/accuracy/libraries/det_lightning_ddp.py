# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["lightning"]
# outcome = "hang"
# causes_any = ["HD111", "HD109", "HD101"]
# culprits = [1]
# lines = [89, 90, 91, 135]
# branch = ["keep.any()", "targets[:, 0] >= 0"]
# source = "https://github.com/Lightning-AI/pytorch-lightning/issues/12190"
# ///
"""Trains a small box regressor with Lightning on a folder of annotation shards, one process per device."""
import json
import logging
import os
import pathlib
import random
import tempfile

import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

log = logging.getLogger("detector")
CLASSES = 5
MAX_BOXES = 6


def write_annotations(path, images=216, seed=32):
    """The export of the labelling tool: one record per frame, ordered by scene."""
    rng = random.Random(seed)
    frames = []
    for scene in range(images // 9):
        busy = rng.random() > 0.06
        for frame in range(9):
            n = rng.randint(1, MAX_BOXES) if busy else 0
            boxes = [[rng.randrange(CLASSES)] + [round(rng.random(), 3) for _ in range(4)] for _ in range(n)]
            frames.append({"scene": scene, "frame": frame, "boxes": boxes})
    tmp = path.with_suffix(f".{os.getpid()}")
    tmp.write_text(json.dumps(frames))
    tmp.replace(path)


class Frames(Dataset):
    def __init__(self, path):
        self.frames = json.loads(path.read_text())

    def __len__(self):
        return len(self.frames)

    def __getitem__(self, i):
        boxes = self.frames[i]["boxes"]
        target = torch.full((MAX_BOXES, 5), -1.0)
        if boxes:
            target[: len(boxes)] = torch.tensor(boxes, dtype=torch.float)
        return torch.randn(3, 24, 24, generator=torch.Generator().manual_seed(i)), target


class SceneSampler(torch.utils.data.Sampler):
    """Gives each replica whole scenes, so that tracking features stay on one device."""

    def __init__(self, frames, rank, replicas):
        self.indices = [i for i, f in enumerate(frames) if f["scene"] % replicas == rank]

    def __iter__(self):
        return iter(self.indices)

    def __len__(self):
        return len(self.indices)


class Detector(L.LightningModule):
    def __init__(self, width=16):
        super().__init__()
        self.save_hyperparameters()
        self.backbone = nn.Sequential(
            nn.Conv2d(3, width, 3, 2, 1), nn.ReLU(), nn.Conv2d(width, width, 3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten()
        )
        self.box_head = nn.Linear(4 * width, 4 * MAX_BOXES)
        self.class_head = nn.Linear(4 * width, CLASSES * MAX_BOXES)

    def forward(self, images):
        feats = self.backbone(images)
        n = images.shape[0]
        return self.box_head(feats).view(n * MAX_BOXES, 4), self.class_head(feats).view(n * MAX_BOXES, CLASSES)

    def detection_loss(self, boxes, scores, targets):
        keep = targets[:, 0] >= 0
        if not keep.any():
            return torch.zeros((), requires_grad=True)
        box = F.smooth_l1_loss(boxes[keep], targets[keep, 1:])
        cls = F.cross_entropy(scores[keep], targets[keep, 0].long())
        return box + cls

    def training_step(self, batch, batch_idx):
        images, targets = batch
        boxes, scores = self(images)
        loss = self.detection_loss(boxes, scores, targets.flatten(0, 1))
        if batch_idx % 10 == 0:
            log.info("step %d loss %.3f", batch_idx, loss.item())
        return loss

    def configure_optimizers(self):
        opt = torch.optim.SGD(self.parameters(), lr=0.02, momentum=0.9)
        return {"optimizer": opt, "lr_scheduler": torch.optim.lr_scheduler.StepLR(opt, 1)}


class FramesModule(L.LightningDataModule):
    def __init__(self, root, batch_size=3):
        super().__init__()
        self.path = root / "frames.json"
        self.batch_size = batch_size

    def prepare_data(self):
        write_annotations(self.path)

    def setup(self, stage):
        self.data = Frames(self.path)

    def train_dataloader(self):
        t = self.trainer
        return DataLoader(self.data, self.batch_size, sampler=SceneSampler(self.data.frames, t.global_rank, t.world_size))


def main():
    logging.basicConfig(level=logging.INFO, format=f"[{os.environ['RANK']}] %(message)s")
    root = pathlib.Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / f"det-{os.environ['TORCHELASTIC_RUN_ID'][:8]}"
    root.mkdir(parents=True, exist_ok=True)
    L.seed_everything(1, verbose=False)
    trainer = L.Trainer(
        accelerator="cpu", devices=3, strategy="ddp", max_epochs=2, logger=False, enable_checkpointing=False, default_root_dir=root,
        enable_progress_bar=False, enable_model_summary=False, use_distributed_sampler=False,
    )
    trainer.fit(Detector(), datamodule=FramesModule(root))


if __name__ == "__main__":
    main()
