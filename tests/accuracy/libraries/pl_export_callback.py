# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["lightning"]
# outcome = "hang"
# causes_any = ["HD109", "HD101"]
# culprits = [0]
# lines = [63, 66]
# branch = ["rank_zero_only", "rank == 0"]
# source = "https://github.com/alan-turing-institute/autocast/pull/386"
# ///
"""Lightning with a callback that keeps the weights of chosen epochs; its method is decorated with rank_zero_only, as people do
for everything that writes."""
import pathlib
import os
from datetime import timedelta

import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
from lightning.pytorch.callbacks import Callback, LearningRateMonitor
from lightning.pytorch.strategies import DDPStrategy
from lightning.pytorch.utilities import rank_zero_only
from torch.utils.data import DataLoader, TensorDataset, random_split

ROOT = pathlib.Path(os.environ.get("TMPDIR", "/tmp")) / "export"


class Autoencoder(L.LightningModule):
    def __init__(self, width=12, code=4, lr=5e-3):
        super().__init__()
        self.save_hyperparameters()
        self.encoder = nn.Sequential(nn.Linear(width, 16), nn.ReLU(), nn.Linear(16, code))
        self.decoder = nn.Sequential(nn.Linear(code, 16), nn.ReLU(), nn.Linear(16, width))

    def forward(self, x):
        return self.decoder(self.encoder(x))

    def training_step(self, batch, batch_idx):
        (x,) = batch
        loss = F.mse_loss(self(x), x)
        self.log("train/mse", loss, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch, batch_idx):
        (x,) = batch
        self.log("val/mse", F.mse_loss(self(x), x), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)


class KeepEpochs(Callback):
    """Writes epoch-XX.ckpt for the epochs that the paper shows."""

    def __init__(self, folder, epochs):
        self.folder, self.epochs, self.written = pathlib.Path(folder), set(epochs), []

    def on_train_epoch_end(self, trainer, module):
        if trainer.current_epoch in self.epochs:
            self.write(trainer, f"epoch-{trainer.current_epoch:02d}.ckpt")

    @rank_zero_only
    def write(self, trainer, name):
        self.folder.mkdir(parents=True, exist_ok=True)
        trainer.save_checkpoint(self.folder / name)
        self.written.append(name)
        (self.folder / "index.txt").write_text("\n".join(self.written))


class GradNorm(Callback):
    def __init__(self):
        self.norms = []

    def on_before_optimizer_step(self, trainer, module, optimizer):
        norm = torch.stack([p.grad.norm() for p in module.parameters() if p.grad is not None]).norm()
        self.norms.append(norm.item())


def make_data():
    g = torch.Generator().manual_seed(0)
    basis = torch.randn(4, 12, generator=g)
    data = TensorDataset(torch.randn(288, 4, generator=g) @ basis)
    train, val = random_split(data, [240, 48], generator=torch.Generator().manual_seed(1))
    return DataLoader(train, batch_size=10, shuffle=True), DataLoader(val, batch_size=8)


def main():
    torch.set_num_threads(1)
    L.seed_everything(2)
    train, val = make_data()
    trainer = L.Trainer(accelerator="cpu", devices=3, max_epochs=8, logger=False, enable_checkpointing=False,
                        strategy=DDPStrategy(process_group_backend="gloo", timeout=timedelta(minutes=30)),
                        enable_progress_bar=False, enable_model_summary=False, 
                        callbacks=[GradNorm(), KeepEpochs(ROOT, epochs=(2, 5, 7))], default_root_dir=str(ROOT))
    trainer.fit(Autoencoder(), train, val)
    if trainer.is_global_zero:
        print("finished after", trainer.global_step, "steps", flush=True)


if __name__ == "__main__":
    main()
