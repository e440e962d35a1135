"""Shuffled batches with noise."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from learning.stages import Stage
from settings.ini import Configuration
from storage.caches import WindowCache


@dataclass(frozen=True)
class Batch:
    known: torch.Tensor
    future: torch.Tensor
    weights: torch.Tensor

    @property
    def weight(self) -> float:
        return float(self.weights.sum())


class Batches:
    """The begin of a rank's cache is for training, the end for evaluation."""

    def __init__(self, cache: WindowCache, stage: Stage, configuration: Configuration, rank: int) -> None:
        self.cache = cache
        self.stage = stage
        self.size = configuration.integer("training", "batch")
        self.jitter = configuration.number("training", "jitter")
        self.flip_share = configuration.number("training", "flip_share")
        share = configuration.number("evaluation", "share")
        self.cut = max(1, int(len(cache) * (1 - share)))
        self.chance = random.Random(rank)
        self.flipped = 0

    def __iter__(self) -> Iterator[Batch]:
        """One epoch over what this rank has."""
        order = list(range(self.cut))
        self.chance.shuffle(order)
        for start in range(0, len(order), self.size):
            chosen = order[start : start + self.size]
            if len(chosen) < 2 < len(order):
                chosen += order[:1]
            yield self._batch(chosen, noisy=True)

    def forever(self) -> Iterator[Batch]:
        while True:
            yield from self

    def for_evaluation(self) -> Iterator[Batch]:
        rest = list(range(self.cut, len(self.cache)))
        for start in range(0, len(rest), 4 * self.size):
            yield self._batch(rest[start : start + 4 * self.size], noisy=False)

    def _batch(self, chosen: list[int], *, noisy: bool) -> Batch:
        windows = self.cache.windows[chosen]
        if noisy and self.jitter:
            windows = windows + self.jitter * torch.randn_like(windows)
        if noisy and self.chance.random() < self.flip_share:
            windows = -windows
            self.flipped += 1
        known, future = windows[:, : self.stage.window], windows[:, self.stage.window :]
        return Batch(known, future, self.cache.weights[chosen])
