"""Ends training where the error of validation, which is the same on all ranks, no longer falls."""

from __future__ import annotations

import math

from callbacks.base import Callback


class EarlyStopping(Callback):
    """Waits ``patience`` epochs for a gain of at least ``least_gain``."""

    order = 40

    def __init__(self, settings):
        self.settings = settings
        self.best = math.inf
        self.waited = 0

    def stops(self, row):
        if math.isnan(row.error):
            return False
        if row.error < self.best - self.settings.least_gain:
            self.best = row.error
            self.waited = 0
            return False
        self.waited += 1
        return self.waited > self.settings.patience
