"""Progress for people."""

from __future__ import annotations

import logging
import time

from torch import nn

from callbacks.base import Callback, Moment
from cluster.world import World
from evaluation.scores import Scores

LOG = logging.getLogger("forecast.progress")


class Console(Callback):
    def __init__(self, every: int) -> None:
        self.every = every
        self.begin = time.monotonic()
        self.smooth: float | None = None
        self.light = 0

    def after_step(self, moment: Moment) -> None:
        self.smooth = moment.loss if self.smooth is None else 0.8 * self.smooth + 0.2 * moment.loss
        if moment.weight < 5:
            self.light += 1
        if self.every and moment.step % self.every == 0 and moment.world.leads:
            LOG.info("%s, step %d: %.4f", moment.stage, moment.step, self.smooth)
        elif moment.loss > 3 * self.smooth:
            LOG.debug("step %d is far off: %.4f", moment.step, moment.loss)

    def after_epoch(
        self, stage: str, epoch: int, scores: Scores, model: nn.Module, world: World, *, last: bool
    ) -> None:
        if not world.leads:
            return
        covered = ", ".join(f"{level:.0%} covers {share:.0%}" for level, share in scores.coverage.items())
        LOG.info("%s, epoch %d: error %.4f, skill %.2f, %s", stage, epoch, scores.error, scores.skill, covered)
        if last:
            LOG.info("stage %s ends after %.1f s", stage, time.monotonic() - self.begin)
