"""Learning rates over the updates of a run."""

from __future__ import annotations

import math


class Schedule:
    """Warm-up, then a fall to the floor."""

    def __init__(self, settings, total):
        self.settings = settings
        self.total = max(total, settings.warm_up + 1)

    def rate(self, update):
        top, floor, warm_up = self.settings.rate, self.settings.floor, self.settings.warm_up
        if update < warm_up:
            return top * (update + 1) / warm_up
        if self.settings.schedule == "constant":
            return top
        done = min(1.0, (update - warm_up) / (self.total - warm_up))
        share = 0.5 * (1 + math.cos(math.pi * done)) if self.settings.schedule == "cosine" else 1.0 - done
        return floor + (top - floor) * share
