# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "hang"
# causes_any = ["HD109", "HD101"]
# culprits_any = [[2]]
# lines = [30, 34, 38, 78]
# branch = ["self.best", "improved", "score >= self.best", "is_better"]
# source = "https://github.com/Lightning-AI/pytorch-lightning/issues/11267"
# ///
"""Lightning. A callback keeps the best checkpoint by a validation score that was logged without sync_dist; save_checkpoint has a
barrier in it and only the rank whose own shard improved calls it."""
import tempfile
import warnings
from pathlib import Path

import torch
from lightning.pytorch import Callback, LightningDataModule, LightningModule, Trainer
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")
FOLDER = Path(tempfile.gettempdir()) / "lit_best_ckpt"


class KeepBest(Callback):
    def __init__(self, monitor):
        self.monitor, self.best, self.saved = monitor, float("inf"), 0

    def is_better(self, score):
        return score < self.best

    def on_validation_end(self, trainer, module):
        score = trainer.callback_metrics[self.monitor].item()
        if not self.is_better(score):
            return
        self.best = score
        self.saved += 1
        trainer.save_checkpoint(FOLDER / "best.ckpt")


class Data(LightningDataModule):
    def train_dataloader(self):
        return DataLoader(TensorDataset(torch.randn(64, 5)), batch_size=4)

    def val_dataloader(self):
        return DataLoader(TensorDataset(torch.randn(16, 5)), batch_size=4)


class Module(LightningModule):
    """The second validation is better on rank 2 and worse on all others."""

    def __init__(self):
        super().__init__()
        self.net = nn.Linear(5, 1)
        self.validations = 0

    def training_step(self, batch, _):
        return self.net(batch[0]).square().mean()

    def noise(self):
        return -0.5 * self.validations if self.global_rank == 2 else 0.5 * self.validations

    def validation_step(self, batch, _):
        loss = 5.0 + self.net(batch[0]).square().mean() * 0.01
        self.log("val/loss", loss + self.noise())

    def on_validation_epoch_end(self):
        self.validations += 1

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


def main():
    FOLDER.mkdir(exist_ok=True)
    trainer = Trainer(accelerator="cpu", devices=4, strategy="ddp", max_epochs=6, logger=False, enable_checkpointing=False,
                      enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0, callbacks=[KeepBest("val/loss")])
    trainer.fit(Module(), datamodule=Data())


if __name__ == "__main__":
    main()
