"""What callbacks are told."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from cluster.world import World
from evaluation.scores import Scores


@dataclass(frozen=True)
class Moment:
    stage: str
    step: int
    loss: float
    """Of this rank."""
    weight: float
    world: World
    optimizer: torch.optim.Optimizer
    model: nn.Module


class Callback:
    def after_step(self, moment: Moment) -> None:
        """On every rank that has this callback; it must not communicate."""

    def after_epoch(
        self, stage: str, epoch: int, scores: Scores, model: nn.Module, world: World, *, last: bool
    ) -> None:
        """On every rank that has this callback; it must not communicate."""


class Hooks(list[Callback]):
    def after_step(self, moment: Moment) -> None:
        for callback in self:
            callback.after_step(moment)

    def after_epoch(
        self, stage: str, epoch: int, scores: Scores, model: nn.Module, world: World, *, last: bool
    ) -> None:
        for callback in self:
            callback.after_epoch(stage, epoch, scores, model, world, last=last)
