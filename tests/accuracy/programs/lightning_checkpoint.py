"""Lightning: the main process saves a checkpoint of its own.

`trainer.save_checkpoint` collects the state on all ranks and waits for them, so a callback that calls it on the
global zero alone waits for ever.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 2"
# requires = ["lightning"]
# outcome = "hang"
# cause = "HD109"
# culprits = [0]
# lines = [49]
# code = ["trainer.save_checkpoint(os.path.join(tempfile.mkdtemp(prefix=\"best-\"), \"best.ckpt\"))"]
# source = "https://github.com/Lightning-AI/pytorch-lightning/issues/10947"
# ///

import os
import tempfile

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch.utils.data import DataLoader, TensorDataset

FIXED = os.environ.get("FIXED") == "1"


class Regression(LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def training_step(self, batch, index):
        features, targets = batch
        return torch.nn.functional.mse_loss(self.layer(features), targets)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


class KeepBest(Callback):
    def __init__(self):
        self.best = float("inf")

    def on_train_batch_end(self, trainer, module, outputs, batch, index):
        if index % 5 == 4 and float(outputs["loss"]) < self.best:
            self.best = float(outputs["loss"])
            if trainer.is_global_zero or FIXED:
                trainer.save_checkpoint(os.path.join(tempfile.mkdtemp(prefix="best-"), "best.ckpt"))


def main():
    torch.manual_seed(0)
    data = DataLoader(TensorDataset(torch.randn(96, 8), torch.zeros(96, 1)), batch_size=4)
    trainer = Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        max_epochs=2,
        logger=False,
        callbacks=[KeepBest()],
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Regression(), data)


if __name__ == "__main__":
    main()
