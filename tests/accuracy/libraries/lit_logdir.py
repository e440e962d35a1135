# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 2"
# requires = ["lightning"]
# outcome = "hang"
# cause = "HD109"
# culprits = [0]
# lines = [42, 46, 47, 48, 53]
# branch = ["rank_zero_only", "rank == 0", "rank > 0", "is_global_zero", "rank_zero_only.rank"]
# source = "https://github.com/Lightning-AI/pytorch-lightning/issues/18148"
# ///
"""A callback writes sample pictures into the log folder, on the main process only, as its decorator says.
The folder comes from trainer.log_dir, which is a broadcast in disguise: rank 0 broadcasts alone."""
import os
import pathlib
import tempfile

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.utilities import rank_zero_only
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Tiny(LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))

    def training_step(self, batch, _):
        return self.net(batch[0]).square().mean()

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())


class SampleWriter(Callback):
    def __init__(self, every):
        self.every = every

    def folder(self, trainer):
        path = pathlib.Path(trainer.log_dir or ".") / "samples"
        path.mkdir(parents=True, exist_ok=True)
        return path

    @rank_zero_only
    def write(self, trainer, module, step):
        target = self.folder(trainer) / f"{step}.txt"
        target.write_text(str(module.net(torch.ones(1, 4)).item()))

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        if batch_idx % self.every == self.every - 1:
            self.write(trainer, module, trainer.global_step)


class Experiment:
    def __init__(self, root):
        self.root = root

    def trainer(self):
        return Trainer(accelerator="cpu", devices=2, strategy="ddp", max_epochs=30, callbacks=[SampleWriter(every=4)],
                       logger=CSVLogger(self.root, name="log"), enable_checkpointing=False, enable_progress_bar=False,
                       enable_model_summary=False, log_every_n_steps=1000)

    def run(self):
        data = DataLoader(TensorDataset(torch.randn(64, 4)), batch_size=4)
        self.trainer().fit(Tiny(), data)


if __name__ == "__main__":
    Experiment(os.path.join(tempfile.gettempdir(), "samples-run")).run()
