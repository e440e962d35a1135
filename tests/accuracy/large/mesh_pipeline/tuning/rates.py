from __future__ import annotations


def rate_at(step: int, peak: float, steps: int) -> float:
    """Up for the first fifth, level, then down for the last third."""
    rising, falling = max(1, steps // 5), max(1, steps // 3)
    if step < rising:
        return peak * (step + 1) / rising
    left = steps - step
    return peak * left / falling if left < falling else peak
