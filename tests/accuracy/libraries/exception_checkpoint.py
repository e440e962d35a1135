# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 2"
# requires = ["lightning"]
# outcome = "hang"
# causes_any = ["HD103", "HD106", "HD101", "HD109"]
# culprits = [1]
# lines = [59, 61, 72, 99]
# branch = ["not torch.isfinite(target).all()", "except BaseException"]
# source = "https://github.com/Lightning-AI/pytorch-lightning/issues/20187"
# ///
"""Regression on sensor readings with Lightning DDP and a checkpoint kept for post-mortem runs."""
import os
import tempfile
from pathlib import Path

import lightning as L
import torch
from lightning.pytorch.callbacks import OnExceptionCheckpoint
from lightning.pytorch.strategies import DDPStrategy
from torch.utils.data import DataLoader, Dataset


class SensorReadings(Dataset):
    """Readings of a bank of thermocouples; a disconnected probe reports inf."""

    def __init__(self, n=160, probes=6):
        gen = torch.Generator().manual_seed(3)
        self.x = torch.randn(n, probes, generator=gen)
        self.y = self.x.sum(dim=1, keepdim=True)
        self.y[57] = float("inf")

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


class ReadingsModule(L.LightningDataModule):
    def __init__(self, batch_size=5):
        super().__init__()
        self.batch_size = batch_size

    def setup(self, stage):
        self.train = SensorReadings()

    def train_dataloader(self):
        sampler = torch.utils.data.DistributedSampler(
            self.train, num_replicas=self.trainer.world_size, rank=self.trainer.global_rank, shuffle=False
        )
        return DataLoader(self.train, batch_size=self.batch_size, sampler=sampler)


class InvalidReading(RuntimeError):
    pass


def check_targets(target):
    if not torch.isfinite(target).all():
        bad = (~torch.isfinite(target)).nonzero()[0].tolist()
        raise InvalidReading(f"reading {bad} is not finite")
    return target


class Regressor(L.LightningModule):
    def __init__(self, width=12):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(6, width), torch.nn.Tanh(), torch.nn.Linear(width, 1))

    def training_step(self, batch, batch_idx):
        x, y = batch
        y = check_targets(y)
        return torch.nn.functional.mse_loss(self.net(x), y)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


def build_trainer(root):
    return L.Trainer(
        accelerator="cpu",
        devices=2,
        strategy=DDPStrategy(process_group_backend="gloo"),
        max_epochs=2,
        default_root_dir=str(root),
        callbacks=[OnExceptionCheckpoint(str(root / "post_mortem"))],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
    )


def main():
    L.seed_everything(7)
    root = Path(tempfile.gettempdir()) / f"readings_{os.environ['MASTER_PORT']}"
    root.mkdir(parents=True, exist_ok=True)
    trainer = build_trainer(root)
    trainer.fit(Regressor(), datamodule=ReadingsModule())


if __name__ == "__main__":
    main()
