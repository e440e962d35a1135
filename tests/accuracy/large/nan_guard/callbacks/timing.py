"""Measures steps, and tells of those that took unusually long."""

from __future__ import annotations

import logging
import time

from callbacks.base import Callback

log = logging.getLogger("forecast.clock")


class StepClock(Callback):
    """Seconds of each step, without the first ones."""

    order = 20

    def __init__(self, warm_up):
        self.warm_up = warm_up
        self.began = 0.0
        self.steps = 0
        self.total = 0.0
        self.fastest = None
        self.slow = 0

    def before_step(self, state):
        self.began = time.perf_counter()

    def after_step(self, state):
        state.seconds = time.perf_counter() - self.began
        self.steps += 1
        if self.steps <= self.warm_up:
            return
        self.total += state.seconds
        if self.fastest is None or state.seconds < self.fastest:
            self.fastest = state.seconds
        elif state.seconds > 3 * self.mean():
            self.slow += 1
            log.debug("step %d took %.3f s", state.step, state.seconds)

    def mean(self):
        counted = self.steps - self.warm_up
        return self.total / counted if counted > 0 else 0.0

    def end(self, trainer, history):
        if self.steps > self.warm_up:
            log.info("%.1f ms a step, %d of %d slow", 1e3 * self.mean(), self.slow, self.steps)
