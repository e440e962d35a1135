# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["lightning"]
# outcome = "healthy"
# source = "https://github.com/Lightning-AI/pytorch-lightning/issues/11242"
# ///
"""Lightning run whose main process writes a long report with plots after validation, with a subprocess and a retry loop, while
the others wait at the next collective; ends by itself."""
import json
import os
import pathlib
import subprocess
import sys
import time
from datetime import timedelta

import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.strategies import DDPStrategy
from lightning.pytorch.utilities import rank_zero_only
from torch.utils.data import DataLoader, TensorDataset

ROOT = pathlib.Path(os.environ.get("TMPDIR", "/tmp")) / "report"


class Regressor(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 1))

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = F.mse_loss(self.net(x), y)
        self.log("train/loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.log("val/loss", F.mse_loss(self.net(x), y), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-2)


class Report(Callback):
    """Renders the report in a separate process and uploads it to a slow share."""

    script = "import time; time.sleep(5); print('rendered')"

    @rank_zero_only
    def on_validation_end(self, trainer, module):
        if trainer.sanity_checking:
            return
        ROOT.mkdir(parents=True, exist_ok=True)
        rendered = subprocess.run([sys.executable, "-c", self.script], capture_output=True, text=True, check=True)
        numbers = {k: float(v) for k, v in trainer.callback_metrics.items()}
        for attempt in range(1, 5):
            if self.upload(numbers, attempt):
                break
            time.sleep(1.5 * attempt)
        print("report", trainer.current_epoch, rendered.stdout.strip(), "attempts", attempt, flush=True)

    def upload(self, numbers, attempt):
        if attempt < 3:
            return False
        (ROOT / "report.json").write_text(json.dumps(numbers))
        return True


def data(n, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 6, generator=g)
    return DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=8)


def main():
    torch.set_num_threads(1)
    L.seed_everything(0)
    trainer = L.Trainer(accelerator="cpu", devices=3, max_epochs=2, logger=False, enable_checkpointing=False,
                        strategy=DDPStrategy(process_group_backend="gloo", timeout=timedelta(minutes=30)),
                        enable_progress_bar=False, enable_model_summary=False, callbacks=[Report()],
                        default_root_dir=str(ROOT))
    trainer.fit(Regressor(), data(120, 0), data(48, 1))


if __name__ == "__main__":
    main()
