"""Keeps the last checkpoints and the best one. Belongs to rank 0 alone, and does not communicate."""

from __future__ import annotations

import logging
import math
import shutil
import tempfile
from pathlib import Path

import torch

from callbacks.base import Callback

log = logging.getLogger("forecast.checkpoint")


class Checkpointer(Callback):
    """Writes a checkpoint an epoch; a folder of its own is removed in the end."""

    order = 80

    def __init__(self, settings):
        self.settings = settings
        self.folder = None
        self.ours = False
        self.best = math.inf
        self.trainer = None

    def start(self, trainer):
        self.trainer = trainer
        self.ours = not self.settings.folder
        self.folder = Path(tempfile.mkdtemp(prefix="forecast-", dir=".") if self.ours else self.settings.folder)
        if not self.ours:
            self.folder.mkdir(parents=True, exist_ok=True)

    def stops(self, row):
        path = self.folder / f"epoch-{row.epoch:03d}.pt"
        content = {
            "model": self.trainer.model.state_dict(),
            "optimizer": self.trainer.optimizer.state(),
            "epoch": row.epoch,
        }
        partial = path.with_suffix(".partial")
        torch.save(content, partial)
        partial.replace(path)
        if row.error < self.best:
            self.best = row.error
            shutil.copy(path, self.folder / "best.pt")
        self.prune()
        return False

    def prune(self):
        kept = sorted(self.folder.glob("epoch-*.pt"))
        for old in kept[: -self.settings.keep] if len(kept) > self.settings.keep else []:
            try:
                old.unlink()
            except OSError as error:
                log.warning("%s stays: %s", old.name, error)

    def end(self, trainer, history):
        if self.ours and self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
