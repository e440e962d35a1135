# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["lightning"]
# outcome = "hang"
# causes_any = ["HD102", "HD101", "HD109"]
# culprits = [1]
# lines = [44, 43, 102, 104, 38]
# branch = ["self.bad_epochs >= self.patience", "value < self.best", "should_stop"]
# source = "https://github.com/Lightning-AI/pytorch-lightning/issues/379"
# ///
"""Lightning training of a forecaster; every rank validates on its own region and training ends on a plateau."""
import logging
import os
import tempfile
import warnings

import lightning as L
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
log = logging.getLogger("forecast")


class PlateauStop(L.Callback):
    """Ends training when the validation loss has not improved for some epochs."""

    def __init__(self, patience, min_delta):
        self.patience, self.min_delta = patience, min_delta
        self.best, self.bad_epochs = float("inf"), 0

    def on_validation_epoch_end(self, trainer, module):
        if trainer.sanity_checking:
            return
        value = module.validation_loss()
        if value < self.best - self.min_delta:
            self.best, self.bad_epochs = value, 0
        else:
            self.bad_epochs += 1
        log.info("epoch %d: validation %.4f, best %.4f", trainer.current_epoch, value, self.best)
        if self.bad_epochs >= self.patience:
            trainer.should_stop = True


class Forecaster(L.LightningModule):
    def __init__(self, lr=0.02):
        super().__init__()
        self.lr = lr
        self.net = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 1))
        self.losses = []

    def training_step(self, batch, _):
        x, y = batch
        return nn.functional.mse_loss(self.net(x), y)

    def on_validation_epoch_start(self):
        self.losses.clear()

    def validation_step(self, batch, _):
        x, y = batch
        self.losses.append(nn.functional.mse_loss(self.net(x), y))

    def validation_loss(self):
        return torch.stack(self.losses).mean().item()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.lr)


class Regions(L.LightningDataModule):
    """Region 1 reports quarterly figures that do not follow the daily drivers at all."""

    def __init__(self, rank):
        super().__init__()
        g = torch.Generator().manual_seed(40 + rank)
        x = torch.randn(192, 6, generator=g)
        y = x[:, :2].sum(1, keepdim=True)
        self.train = TensorDataset(x[:128], y[:128])
        y_valid = y[128:] if rank != 1 else -3 * y[128:]
        self.valid = TensorDataset(x[128:], y_valid)

    def train_dataloader(self):
        return DataLoader(self.train, batch_size=16)

    def val_dataloader(self):
        return DataLoader(self.valid, batch_size=32)


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    logging.basicConfig(level=logging.INFO, format=f"region {rank}: %(message)s")
    L.seed_everything(3, verbose=False)
    root = os.path.join(os.environ.get("TMPDIR", tempfile.gettempdir()), "forecast")
    os.makedirs(root, exist_ok=True)
    trainer = L.Trainer(
        accelerator="cpu", devices=world, strategy="ddp", max_epochs=30, use_distributed_sampler=False, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, default_root_dir=root,
        num_sanity_val_steps=0, callbacks=[PlateauStop(patience=3, min_delta=1e-3)],
    )
    trainer.fit(Forecaster(), datamodule=Regions(rank))
    log.info("stopped after epoch %d", trainer.current_epoch)
    trainer.strategy.barrier("export")
    if trainer.is_global_zero:
        torch.save(trainer.lightning_module.state_dict(), os.path.join(root, "forecaster.pt"))


if __name__ == "__main__":
    main()
