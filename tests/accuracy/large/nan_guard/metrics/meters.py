"""Running values of one rank."""

from __future__ import annotations

import math


class Mean:
    """A weighted mean of what was finite."""

    def __init__(self):
        self.sum = 0.0
        self.weight = 0.0

    def add(self, value, weight=1.0):
        if math.isfinite(value):
            self.sum += value * weight
            self.weight += weight

    @property
    def value(self):
        return self.sum / self.weight if self.weight else math.nan


class Smooth:
    """An exponential mean that makes up for its start."""

    def __init__(self, keep):
        self.keep = keep
        self.raw = 0.0
        self.count = 0

    def add(self, value):
        self.raw = self.keep * self.raw + (1 - self.keep) * value
        self.count += 1

    @property
    def value(self):
        return self.raw / (1 - self.keep**self.count) if self.count else 0.0
