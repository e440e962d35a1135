# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 2"
# requires = ["lightning"]
# outcome = "hang"
# cause = "HD102"
# culprits = [0]
# lines = [44, 46, 52, 53, 97]
# branch = ["should_stop", "command ==", "is_global_zero", "mailbox.poll"]
# source = "https://github.com/talmolab/sleap-nn/pull/471"
# ///
"""A "Stop early" button sends a message that only rank 0 of a Lightning job reads; the callback sets should_stop
there and then calls barrier, which lines the ranks up in time but does not tell rank 1 to stop.  Rank 0 leaves the
epoch and saves, rank 1 trains on."""
import os
import tempfile
import warnings

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")


class Mailbox:
    """Stands for the ZMQ subscriber: commands arrive at certain steps."""

    def __init__(self, script):
        self.script = dict(script)
        self.clock = 0

    def poll(self):
        self.clock += 1
        return self.script.pop(self.clock, None)


class TrainingController(L.Callback):
    def __init__(self, mailbox):
        self.mailbox = mailbox
        self.stopped_at = None

    def handle(self, command, trainer):
        if command == "stop":
            self.stopped_at = trainer.global_step
            trainer.should_stop = True
        elif command == "lower_lr":
            for group in trainer.optimizers[0].param_groups:
                group["lr"] *= 0.1

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if trainer.is_global_zero and self.mailbox is not None:
            command = self.mailbox.poll()
            if command is not None:
                self.handle(command, trainer)
        trainer.strategy.barrier()


class Keypoints(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(24, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU())
        self.head = nn.Linear(32, 4)

    def forward(self, x):
        return self.head(self.backbone(x))

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = nn.functional.mse_loss(self(x), y)
        self.log("train_loss", loss, on_epoch=True, sync_dist=True)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.log("val_loss", nn.functional.mse_loss(self(x), y), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 1e-3)


def loaders():
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(512, 24), torch.randn(512, 4))
    return DataLoader(data, batch_size=8), DataLoader(data, batch_size=64)


def main():
    folder = tempfile.mkdtemp(prefix="pose-")
    controller = TrainingController(Mailbox({3: "lower_lr", 9: "stop"}))
    trainer = L.Trainer(
        accelerator="cpu", devices=int(os.environ["WORLD_SIZE"]), strategy="ddp", max_epochs=3, logger=False,
        callbacks=[controller, L.pytorch.callbacks.ModelCheckpoint(dirpath=folder, monitor="val_loss")],
        enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0,
    )
    train, val = loaders()
    trainer.fit(Keypoints(), train, val)
    print("done", controller.stopped_at)


if __name__ == "__main__":
    main()
