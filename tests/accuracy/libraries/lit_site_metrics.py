# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["lightning"]
# outcome = "hang"
# causes_any = ["HD109", "HD101"]
# culprits = [0]
# culprits_any = [[1, 2]]
# lines = [75, 49, 105]
# branch = ["self.support[c]"]
# source = "https://github.com/Lightning-AI/pytorch-lightning/issues/19106"
# ///
"""Trains a wildlife classifier with Lightning DDP; every camera site validates on its own pictures and the recall of each species is logged."""
import logging
import os
import tempfile
import warnings
from pathlib import Path

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")
log = logging.getLogger("wildlife")
CLASSES = ("boar", "deer", "fox", "lynx")
SITES = {"valley": (0, 1, 2, 3), "ridge": (0, 1, 2), "lake": (0, 1, 2)}


def pictures(site, n, seed):
    gen = torch.Generator().manual_seed(seed)
    species = torch.tensor(SITES[site])
    y = species[torch.randint(len(species), (n,), generator=gen)]
    x = torch.randn(n, 12, generator=gen) + torch.nn.functional.one_hot(y, 12) * 2.0
    return TensorDataset(x, y)


class RecallTable:
    """Hits and support per species since the last reset."""

    def __init__(self, n):
        self.hits, self.support = torch.zeros(n), torch.zeros(n)

    def update(self, guess, y):
        self.support += torch.bincount(y, minlength=len(self.support))
        self.hits += torch.bincount(y[guess == y], minlength=len(self.hits))

    def export(self):
        table = {f"recall/{CLASSES[c]}": self.hits[c] / self.support[c] for c in range(len(CLASSES)) if self.support[c] > 0}
        self.hits.zero_()
        self.support.zero_()
        return table


class Classifier(L.LightningModule):
    def __init__(self, lr=0.05):
        super().__init__()
        self.lr = lr
        self.net = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, len(CLASSES)))
        self.recall = RecallTable(len(CLASSES))

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = nn.functional.cross_entropy(self.net(x), y)
        self.log("train/loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.recall.update(self.net(x).argmax(1), y)

    def on_validation_epoch_end(self):
        table = self.recall.export()
        log.info("epoch %d, %d species seen", self.current_epoch, len(table))
        self.log_dict(table, sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.lr)


class SiteData(L.LightningDataModule):
    """Every rank serves one site, so no distributed sampler."""

    def __init__(self, site):
        super().__init__()
        self.site = site

    def train_dataloader(self):
        return DataLoader(pictures(self.site, 128, 1), batch_size=16)

    def val_dataloader(self):
        return DataLoader(pictures(self.site, 64, 2), batch_size=16)


def main():
    rank = int(os.environ["RANK"])
    logging.basicConfig(level=logging.INFO, format=f"[{rank}] %(message)s")
    site = list(SITES)[rank]
    out = Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / "wildlife"
    L.seed_everything(4)
    trainer = L.Trainer(accelerator="cpu", devices=3, strategy="ddp", max_epochs=3, default_root_dir=out, logger=False,
                        enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0,
                        use_distributed_sampler=False, enable_checkpointing=False)
    module = Classifier()
    trainer.fit(module, datamodule=SiteData(site))
    log.info("done: %s", {k: round(v.item(), 3) for k, v in trainer.callback_metrics.items()})


if __name__ == "__main__":
    main()
