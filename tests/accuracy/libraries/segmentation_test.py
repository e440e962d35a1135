# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["lightning"]
# outcome = "hang"
# causes_any = ["HD101", "HD106", "HD109"]
# culprits_any = [[0], [1, 2]]
# lines = [71, 72, 86, 87, 90, 94, 114]
# branch = ["self.report is None", "self.trainer.is_global_zero"]
# source = "https://github.com/Lightning-AI/pytorch-lightning/issues/16541"
# ///
import json
import logging
import os
import tempfile
import warnings
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

warnings.filterwarnings("ignore")
import lightning.pytorch as pl  # noqa: E402

logging.basicConfig(level=logging.INFO, format="%(asctime)s [r" + os.environ["RANK"] + "] %(message)s")
log = logging.getLogger("segtest")


class PatchDataset(Dataset):
    def __init__(self, n, seed):
        gen = torch.Generator().manual_seed(seed)
        self.x = torch.randn(n, 3, 8, 8, generator=gen)
        self.y = (self.x.mean(1) > 0).long()

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


class PatchData(pl.LightningDataModule):
    def train_dataloader(self):
        return DataLoader(PatchDataset(48, 0), batch_size=4)

    def test_dataloader(self):
        return DataLoader(PatchDataset(24, 1), batch_size=4)


class TestReport:
    """Collects the per-class scores of a test run and writes them as one file."""

    def __init__(self, root):
        self.path = Path(root) / "test_report.json"

    def write(self, table):
        self.path.write_text(json.dumps(table, indent=1))
        log.info("wrote %s", self.path)


class Segmenter(pl.LightningModule):
    def __init__(self, out_dir, classes=2):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, classes, 1))
        self.out_dir, self.classes = out_dir, classes
        self.report = None
        self._hits, self._seen = [], []

    def setup(self, stage):
        if stage == "test" and self.trainer.is_global_zero:
            self.report = TestReport(self.out_dir)

    def training_step(self, batch, batch_idx):
        x, y = batch
        return F.cross_entropy(self.net(x), y)

    def test_step(self, batch, batch_idx):
        x, y = batch
        pred = self.net(x).argmax(1)
        for c in range(self.classes):
            self._hits.append(((pred == y) & (y == c)).sum().float())
            self._seen.append((y == c).sum().float())

    def on_test_epoch_end(self):
        if self.report is None:
            return
        hits = torch.stack(self._hits).view(-1, self.classes).sum(0)
        seen = torch.stack(self._seen).view(-1, self.classes).sum(0)
        table = self._per_class(hits, seen)
        self.report.write({str(c): v for c, v in enumerate(table)})

    def _per_class(self, hits, seen):
        both = self.all_gather(torch.stack([hits, seen]))
        both = both.sum(0) if both.dim() == 3 else both
        return (both[0] / both[1].clamp(min=1)).tolist()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def main():
    out = os.path.join(tempfile.gettempdir(), "segtest_" + os.environ["MASTER_PORT"])
    os.makedirs(out, exist_ok=True)
    pl.seed_everything(3)
    trainer = pl.Trainer(
        accelerator="cpu", devices=int(os.environ["WORLD_SIZE"]), strategy="ddp", max_epochs=2,
        logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        default_root_dir=out,
    )
    model, data = Segmenter(out), PatchData()
    trainer.fit(model, data)
    trainer.test(model, data, verbose=False)
    trainer.strategy.barrier("results-published")
    log.info("done")


if __name__ == "__main__":
    main()
