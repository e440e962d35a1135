# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["lightning"]
# outcome = "hang"
# cause = "HD109"
# culprits = [1]
# lines = [60, 82]
# branch = ["self.seen[n]", "seen[n]", "per_class", "dictionary.items()", "log_dict"]
# source = "https://github.com/Lightning-AI/pytorch-lightning/issues/19106"
# ///
"""A detector logs one recall per class that occurred in its validation shard, with sync_dist=True.
The rare class occurs in the shard of rank 1 only, so rank 1 reduces one metric more than the others."""
import os
import sys
import warnings

import torch
from lightning.pytorch import LightningDataModule, LightningModule, Trainer
from torch import nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler

warnings.filterwarnings("ignore")
CLASSES = ["car", "person", "unicycle"]


class Frames(Dataset):
    """24 frames; frame 10 is the only one with a unicycle."""

    def __len__(self):
        return 24

    def __getitem__(self, index):
        g = torch.Generator().manual_seed(index)
        label = 2 if index == 10 else index % 2
        return torch.randn(8, generator=g), label


class Data(LightningDataModule):
    def loader(self):
        sampler = DistributedSampler(Frames(), self.trainer.world_size, self.trainer.global_rank, shuffle=False)
        return DataLoader(Frames(), batch_size=4, sampler=sampler)

    train_dataloader = val_dataloader = loader


class ClassRecall:
    def __init__(self):
        self.reset()

    def reset(self):
        self.seen = dict.fromkeys(CLASSES, 0)
        self.hits = dict.fromkeys(CLASSES, 0)

    def update(self, logits, labels):
        for guess, label in zip(logits.argmax(1).tolist(), labels.tolist()):
            self.seen[CLASSES[label]] += 1
            self.hits[CLASSES[label]] += guess == label

    def per_class(self):
        return {f"val/recall_{n}": self.hits[n] / self.seen[n] for n in CLASSES if self.seen[n]}


class Detector(LightningModule):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
        self.recall = ClassRecall()

    def training_step(self, batch, _):
        x, y = batch
        loss = nn.functional.cross_entropy(self.body(x), y)
        self.log("train/loss", loss)
        return loss

    def validation_step(self, batch, _):
        x, y = batch
        self.recall.update(self.body(x), y)

    def on_validation_epoch_end(self):
        scores = self.recall.per_class()
        self.recall.reset()
        self.log_dict(scores, sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def main():
    trainer = Trainer(accelerator="cpu", devices=3, strategy="ddp", max_epochs=50, logger=False, enable_checkpointing=False,
                      enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0, use_distributed_sampler=False)
    trainer.fit(Detector(), datamodule=Data())
    print("trained", os.environ["RANK"], file=sys.stderr)


if __name__ == "__main__":
    main()
