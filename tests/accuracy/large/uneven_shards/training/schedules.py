"""Learning rates."""

from __future__ import annotations

import math
from dataclasses import dataclass

from settings.schema import TrainingSettings


@dataclass
class WarmCosine:
    settings: TrainingSettings
    expected_steps: int

    def __call__(self, step: int) -> float:
        s = self.settings
        if step < s.warmup_steps:
            return s.peak_rate * (step + 1) / s.warmup_steps
        rest = max(1, self.expected_steps - s.warmup_steps)
        done = min(1.0, (step - s.warmup_steps) / rest)
        return s.floor_rate + 0.5 * (s.peak_rate - s.floor_rate) * (1 + math.cos(math.pi * done))
