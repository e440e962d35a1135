"""Lightning: a validation metric that only the global zero logs, averaged at the end of the epoch.

In validation `self.log(..., sync_dist=True)` only takes the value down. Lightning averages what it has been
given when the epoch ends, long after the guilty line has returned, and no stack shows it.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 2"
# requires = ["lightning"]
# outcome = "hang"
# cause = "HD109"
# culprits = [0]
# lines = [66]
# code = ["trainer.fit(Regression(), data, held_out)"]
# source = "https://github.com/dvl-tum/center-group/pull/2"
# ///

import os

import torch
from lightning.pytorch import LightningModule, Trainer
from torch.utils.data import DataLoader, TensorDataset

FIXED = os.environ.get("FIXED") == "1"


class Regression(LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def loss(self, batch):
        features, targets = batch
        return torch.nn.functional.mse_loss(self.layer(features), targets)

    def training_step(self, batch, index):
        return self.loss(batch)

    def validation_step(self, batch, index):
        loss = self.loss(batch)
        if self.trainer.is_global_zero or FIXED:
            self.log("val_loss", loss, sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


def loader(count):
    return DataLoader(TensorDataset(torch.randn(count, 8), torch.randn(count, 1)), batch_size=4)


def main():
    torch.manual_seed(0)
    data, held_out = loader(48), loader(16)
    trainer = Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        max_epochs=2,
        num_sanity_val_steps=0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Regression(), data, held_out)


if __name__ == "__main__":
    main()
