"""Keeps a loss that is not finite, or absurdly large, from the weights."""

from __future__ import annotations

import logging
import math

from callbacks.base import Callback

log = logging.getLogger("forecast.guard")


class TooManyBadSteps(RuntimeError):
    """The loss was bad for longer than is tolerated."""


class LossGuard(Callback):
    """Vetoes updates of bad losses; raises ``TooManyBadSteps`` after ``tolerance`` of them in a row."""

    order = 10

    def __init__(self, settings, world):
        self.settings = settings
        self.world = world
        self.in_row = 0
        self.seen = {"not finite": 0, "too large": 0}
        self.largest = 0.0

    def vetoes(self, state):
        if not self.settings.enabled:
            return False
        bad = self.is_bad(state.loss)
        if self.settings.together:
            bad = self.world.any(bad)
        if not bad:
            self.in_row = 0
            return False
        self.in_row += 1
        log.debug("update %d/%d is left out", state.epoch, state.step)
        if self.in_row >= self.settings.tolerance:
            raise TooManyBadSteps(f"{self.in_row} bad losses in a row, the last of them {state.loss}")
        return True

    def is_bad(self, loss):
        if not math.isfinite(loss):
            self.seen["not finite"] += 1
            return True
        if loss > self.settings.ceiling:
            self.seen["too large"] += 1
            return True
        self.largest = max(self.largest, loss)
        return False

    def end(self, trainer, history):
        for kind, count in self.seen.items():
            if count:
                log.info("%d losses were %s", count, kind)
