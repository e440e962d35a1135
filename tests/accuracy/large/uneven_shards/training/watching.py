"""A rank's own eye on its loss and its speed."""

from __future__ import annotations

import math
import time
from collections import deque


class SpikeWatch:
    """Counts losses far above their running mean; they are logged and never acted on."""

    def __init__(self, factor: float, decay: float = 0.9) -> None:
        self.factor = factor
        self.decay = decay
        self.mean: float | None = None
        self.spikes = 0

    def see(self, loss: float) -> bool:
        if not math.isfinite(loss):
            self.spikes += 1
            return True
        if self.mean is None:
            self.mean = loss
            return False
        spike = loss > self.factor * self.mean
        if spike:
            self.spikes += 1
        self.mean = self.decay * self.mean + (1 - self.decay) * loss
        return spike


class SpeedWatch:
    """Which steps took much longer than usual."""

    def __init__(self, factor: float) -> None:
        self.factor = factor
        self.recent: deque[float] = deque(maxlen=20)
        self.slow = 0
        self._since = time.perf_counter()

    def tick(self) -> float:
        now = time.perf_counter()
        took, self._since = now - self._since, now
        if len(self.recent) >= 5 and took > self.factor * sorted(self.recent)[len(self.recent) // 2]:
            self.slow += 1
        self.recent.append(took)
        return took

    def rest(self) -> None:
        self._since = time.perf_counter()
