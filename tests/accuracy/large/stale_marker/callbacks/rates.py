"""The learning rate: warm-up, then smaller with each stage."""

from __future__ import annotations

from callbacks.base import Callback, Moment
from settings.ini import Configuration


class RateControl(Callback):
    def __init__(self, configuration: Configuration) -> None:
        self.rate = configuration.number("training", "rate")
        self.warmup = configuration.integer("training", "warmup")
        self.stages: list[str] = []

    def after_step(self, moment: Moment) -> None:
        if moment.stage not in self.stages:
            self.stages.append(moment.stage)
        factor = 0.5 ** (len(self.stages) - 1)
        if moment.step < self.warmup:
            factor *= (moment.step + 1) / self.warmup
        for group in moment.optimizer.param_groups:
            if group["lr"] != self.rate * factor:
                group["lr"] = self.rate * factor
