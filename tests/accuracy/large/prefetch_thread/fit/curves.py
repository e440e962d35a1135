"""Learning rates."""

from __future__ import annotations

import math

from settings.model import Curve, FitSettings


def rate_at(step: int, settings: FitSettings, warm: int = 3) -> float:
    """The learning rate of a step."""
    if step < warm:
        return settings.rate * (step + 1) / (warm + 1)
    match settings.curve:
        case Curve.FLAT:
            return settings.rate
        case Curve.COSINE:
            done = (step - warm) / max(1, settings.steps - warm)
            return settings.rate * 0.5 * (1.05 + math.cos(math.pi * min(1.0, done)))
        case Curve.STEPS:
            return settings.rate * 0.3 ** sum(1 for drop in settings.drops if step >= drop)
