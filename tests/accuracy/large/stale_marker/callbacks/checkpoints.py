"""The best models on disk; only the leader has this callback."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from callbacks.base import Callback
from cluster.world import World
from evaluation.scores import Scores


class KeepBest(Callback):
    def __init__(self, folder: Path, kept: int) -> None:
        self.folder = folder
        self.kept = kept
        self.ranking: list[tuple[float, Path]] = []

    def after_epoch(
        self, stage: str, epoch: int, scores: Scores, model: nn.Module, world: World, *, last: bool
    ) -> None:
        full = len(self.ranking) >= self.kept
        if full and scores.error >= self.ranking[-1][0] and not last:
            return
        path = self.folder / f"{stage}-{epoch}.pt"
        torch.save(model.state_dict(), path)
        self.ranking.append((scores.error, path))
        self.ranking.sort(key=lambda entry: entry[0])
        for _, worse in self.ranking[self.kept :]:
            if worse != path or not last:
                worse.unlink(missing_ok=True)
        del self.ranking[self.kept :]
