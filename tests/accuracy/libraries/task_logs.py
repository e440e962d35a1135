# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["lightning"]
# outcome = "hang"
# causes_any = ["HD101", "HD109", "HD102"]
# culprits_any = [[1], [0, 2]]
# lines = [85, 87, 90, 91]
# branch = ["self.per_task.items()", "weight <= 0.0"]
# source = "https://github.com/Lightning-AI/pytorch-lightning/issues/19106"
# ///
"""Multi-task regressor with Lightning; logs a validation score per task."""
import logging
import os
from collections import defaultdict

import lightning.pytorch as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
TASKS = ("depth", "normals", "albedo", "edges")


class Scenes(Dataset):
    """Scenes of the suite; the annotation weight says how far a task was annotated there."""

    def __init__(self, n: int, seed: int):
        g = torch.Generator().manual_seed(seed)
        self.x = torch.randn(n, 14, generator=g)
        self.task = torch.arange(n) % len(TASKS)
        self.weight = torch.rand(n, generator=g)
        site = torch.arange(n) // (len(TASKS) * 2)
        self.weight[(site % 3 == 1) & (self.task == 2)] = 0.0

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.task[i], self.weight[i]


class SiteSampler(torch.utils.data.Sampler):
    """Hands whole sites to processes, so that caches are warm."""

    def __init__(self, data: Scenes, rank: int, world: int):
        span = len(TASKS) * 2
        self.index = [i for i in range(len(data)) if (i // span) % world == rank]

    def __iter__(self):
        return iter(self.index)

    def __len__(self):
        return len(self.index)


class MultiTask(pl.LightningModule):
    def __init__(self, lr: float = 5e-3):
        super().__init__()
        self.lr = lr
        self.trunk = nn.Sequential(nn.Linear(14, 32), nn.GELU())
        self.heads = nn.Linear(32, len(TASKS))
        self.per_task = defaultdict(list)

    def forward(self, x, task):
        return self.heads(self.trunk(x)).gather(1, task[:, None]).squeeze(1)

    def errors(self, batch):
        x, task, weight = batch
        return (self(x, task) - x.mean(1)).pow(2), task, weight

    def training_step(self, batch, batch_idx):
        err, _, weight = self.errors(batch)
        return (err * weight).mean()

    def on_validation_epoch_start(self):
        self.per_task.clear()

    def validation_step(self, batch, batch_idx):
        err, task, weight = self.errors(batch)
        for e, t, w in zip(err, task, weight):
            self.collect(TASKS[int(t)], e, float(w))

    def collect(self, task: str, score, weight: float):
        if weight <= 0.0:
            return
        self.per_task[task].append(score)

    def on_validation_epoch_end(self):
        for name, values in self.per_task.items():
            self.log(f"val/{name}", torch.stack(values).mean(), on_epoch=True, sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.lr)


class SceneData(pl.LightningDataModule):
    def loader(self, n, seed):
        data = Scenes(n, seed)
        return DataLoader(data, batch_size=4, sampler=SiteSampler(data, self.trainer.global_rank, self.trainer.world_size))

    def train_dataloader(self):
        return self.loader(96, 1)

    def val_dataloader(self):
        return self.loader(72, 2)


def main():
    pl.seed_everything(1)
    trainer = pl.Trainer(
        accelerator="cpu", devices=int(os.environ.get("LOCAL_WORLD_SIZE", "1")), strategy="ddp", max_epochs=5,
        check_val_every_n_epoch=2, num_sanity_val_steps=0, use_distributed_sampler=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, logger=False,
    )
    trainer.fit(MultiTask(), datamodule=SceneData())


if __name__ == "__main__":
    main()
