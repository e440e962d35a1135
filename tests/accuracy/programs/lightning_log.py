"""Lightning: the main process logs a value, and the value is synchronised.

`self.log(..., sync_dist=True)` averages the value over all ranks. In a training step it does so at once, on
every rank that calls it; here only the global zero does.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 2"
# requires = ["lightning"]
# outcome = "hang"
# cause = "HD109"
# culprits = [0]
# lines = [36]
# code = ["self.log(\"norm\", self.layer.weight.norm(), sync_dist=True)"]
# source = "https://github.com/choderalab/modelforge/pull/313"
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

    def training_step(self, batch, index):
        features, targets = batch
        loss = torch.nn.functional.mse_loss(self.layer(features), targets)
        if index % 4 == 3 and (self.trainer.is_global_zero or FIXED):
            self.log("norm", self.layer.weight.norm(), sync_dist=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


def main():
    torch.manual_seed(0)
    data = DataLoader(TensorDataset(torch.randn(96, 8), torch.randn(96, 1)), batch_size=4)
    trainer = Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        max_epochs=2,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Regression(), data)


if __name__ == "__main__":
    main()
