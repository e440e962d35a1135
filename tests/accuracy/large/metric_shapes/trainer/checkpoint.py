"""Checkpoints, written by the first rank."""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path

import torch
from torch import nn

from distributed.setup import Ranks

LOG = logging.getLogger("tagger.checkpoint")


class CheckpointFolder:
    def __init__(self, folder: str, ranks: Ranks, *, keep: int) -> None:
        self.ranks = ranks
        self.keep = keep
        self.temporary: tempfile.TemporaryDirectory[str] | None = None
        self.folder: Path | None = None
        if ranks.is_first:
            if not folder:
                self.temporary = tempfile.TemporaryDirectory(prefix="tagger-", dir=".")
            self.folder = Path(self.temporary.name if self.temporary is not None else folder)
            self.folder.mkdir(parents=True, exist_ok=True)
        self.best = float("-inf")
        self.written: list[tuple[float, Path]] = []

    def save(self, model: nn.Module, epoch: int, value: float) -> bool:
        """Keeps the best ones. Returns whether something was written."""
        improved = value > self.best
        self.best = max(self.best, value)
        if self.folder is None or not (improved or len(self.written) < self.keep):
            return False
        path = self.folder / f"epoch-{epoch}.pt"
        partial = path.with_suffix(".part")
        torch.save(model.state_dict(), partial)
        partial.rename(path)
        self.written.append((value, path))
        while len(self.written) > self.keep:
            worst = min(self.written)
            self.written.remove(worst)
            worst[1].unlink(missing_ok=True)
        LOG.info("%s written%s", path.name, ", the best" if improved else "")
        return True

    def close(self) -> None:
        if self.temporary is not None:
            self.temporary.cleanup()
