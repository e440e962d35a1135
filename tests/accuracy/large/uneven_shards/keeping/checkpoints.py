"""Checkpoints of the main rank; the others have the same weights."""

from __future__ import annotations

import json
import os
from pathlib import Path

import torch
from torch import nn

from comm.world import World
from keeping.retention import to_remove
from settings.schema import KeepingSettings


class Keeper:
    def __init__(self, settings: KeepingSettings, world: World) -> None:
        self.settings = settings
        self.world = world
        self.folder = Path(settings.folder) / "checkpoints"
        self.scores: dict[str, float] = {}

    def due(self, epoch: int) -> bool:
        every = self.settings.every_epochs
        return every > 0 and (epoch + 1) % every == 0

    def keep(self, epoch: int, model: nn.Module, optimizer: torch.optim.Optimizer, score: float) -> None:
        if not self.world.is_main:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"epoch-{epoch:03d}.pt"
        partial = path.with_suffix(".partial")
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, partial)
        os.replace(partial, path)
        self.scores[path.name] = score
        (self.folder / "scores.json").write_text(json.dumps(self.scores))
        for old in to_remove(self.scores, self.settings.keep):
            del self.scores[old]
            (self.folder / old).unlink(missing_ok=True)
