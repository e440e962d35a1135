"""Words and numbers of a validation."""

from __future__ import annotations

import math
from collections.abc import Mapping

from metrics.states import Metric

SHOWN = ("loss", "accuracy", "f1", "accuracy_rare")


def computed(metrics: list[Metric]) -> dict[str, float]:
    values: dict[str, float] = {}
    for metric in metrics:
        for name, value in metric.compute().items():
            if name in values:
                raise ValueError(f"two metrics are called {name}")
            values[name] = value
    return values


def line(values: Mapping[str, float], before: Mapping[str, float] | None = None) -> str:
    """One line, with arrows where a value has moved since the last validation."""
    words = []
    for name in SHOWN:
        if name not in values:
            continue
        value = values[name]
        text = "none" if math.isnan(value) else f"{value:.3f}"
        if before is not None and name in before and abs(value - before[name]) > 1e-3:
            text += "+" if value > before[name] else "-"
        words.append(f"{name} {text}")
    return ", ".join(words)
