# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 2"
# requires = ["lightning"]
# outcome = "hang"
# causes_any = ["HD101", "HD106", "HD109", "HD112"]
# culprits = [1]
# culprits_any = [[1], [0]]
# lines = [63, 67, 116]
# branch = ["self.saved or not self.notice.requested.is_set()", "self.notice.requested.is_set()", "not self.notice.requested.is_set()"]
# source = "https://github.com/GaTech-RL2/EgoVerse/pull/621"
# ///
"""Lightning training that writes a checkpoint when the scheduler signals the node."""
import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from datetime import timedelta

import lightning as L
import torch
from lightning.pytorch.strategies import DDPStrategy
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")
log = logging.getLogger("preempt")


class PreemptionNotice:
    """Turns the scheduler's signal into a flag, and keeps whatever handler was there."""

    def __init__(self, signum: int = signal.SIGUSR2):
        self.signum = signum
        self.requested = threading.Event()
        self.previous = None

    def install(self) -> None:
        self.previous = signal.signal(self.signum, self._on_signal)

    def _on_signal(self, signum, frame) -> None:
        self.requested.set()
        if callable(self.previous):
            self.previous(signum, frame)

    def restore(self) -> None:
        signal.signal(self.signum, self.previous or signal.SIG_DFL)


class PreemptionCheckpoint(L.Callback):
    def __init__(self, folder: str):
        self.folder = folder
        self.notice = PreemptionNotice()
        self.saved = False

    def on_train_start(self, trainer, pl_module) -> None:
        self.notice.install()

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx) -> None:
        if self.saved or not self.notice.requested.is_set():
            return
        self.saved = True
        log.warning("rank %d: saving before the node goes away", trainer.global_rank)
        trainer.save_checkpoint(os.path.join(self.folder, "last.ckpt"))

    def on_train_end(self, trainer, pl_module) -> None:
        self.notice.restore()


class Regressor(L.LightningModule):
    def __init__(self, dim: int = 16):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(dim, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))

    def training_step(self, batch, batch_idx):
        (x,) = batch
        time.sleep(0.02)
        return self.net(x).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1e-3)


class NodeDaemon(L.Callback):
    """Stands for the batch system's step daemon: one per node, signals the task it looks after."""

    SCRIPT = "import os,signal,sys,time; time.sleep(float(sys.argv[2])); os.kill(int(sys.argv[1]), signal.SIGUSR2)"

    def __init__(self, drained: str):
        self.drained = set(drained.split(","))
        self.proc = None

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx) -> None:
        if batch_idx == 20 and f"node{trainer.global_rank}" in self.drained:
            self.proc = subprocess.Popen([sys.executable, "-c", self.SCRIPT, str(os.getpid()), "0.3"])

    def on_train_end(self, trainer, pl_module) -> None:
        if self.proc is not None:
            self.proc.wait()


def main() -> None:
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    folder = os.path.join(tempfile.gettempdir(), f"preempt-{os.environ['MASTER_PORT']}")
    data = TensorDataset(torch.randn(8000, 16))
    trainer = L.Trainer(
        accelerator="cpu", devices=2, max_epochs=4, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
        strategy=DDPStrategy(process_group_backend="gloo", timeout=timedelta(hours=2)),
        callbacks=[NodeDaemon(os.environ.get("DRAIN", "node1")), PreemptionCheckpoint(folder)],
    )
    trainer.fit(Regressor(), DataLoader(data, batch_size=8))


if __name__ == "__main__":
    main()
