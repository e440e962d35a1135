"""Does this rank's data drift away from what it was in the beginning?"""

from __future__ import annotations

import logging
from collections import deque

from torch import nn

from callbacks.base import Callback, Moment
from cluster.world import World
from evaluation.scores import Scores

LOG = logging.getLogger("forecast.drift")


class DriftWatch(Callback):
    def __init__(self, limit: float) -> None:
        self.limit = limit
        self.first: list[float] = []
        self.recent: deque[float] = deque(maxlen=6)
        self.alarms = 0

    def after_step(self, moment: Moment) -> None:
        if len(self.first) < 4:
            self.first.append(moment.loss)
            return
        self.recent.append(moment.loss)
        if len(self.recent) == self.recent.maxlen and self._drift() > self.limit:
            self.alarms += 1

    def _drift(self) -> float:
        begin = sum(self.first) / len(self.first)
        now = sum(self.recent) / len(self.recent)
        return (now - begin) / begin if begin else 0.0

    def after_epoch(
        self, stage: str, epoch: int, scores: Scores, model: nn.Module, world: World, *, last: bool
    ) -> None:
        if self.alarms > 3:
            LOG.info("%s, epoch %d: %d alarms on rank %d", stage, epoch, self.alarms, world.rank)
        self.alarms = 0
        if last:
            self.first.clear()
            self.recent.clear()
