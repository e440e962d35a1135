"""Durations as people write them."""

from __future__ import annotations

import math
import re

_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|min|m|h|d)", re.ASCII)
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def read_duration(text: str) -> float:
    """Seconds: '90' and '90s' → 90.0, '5m' → 300.0, '1h30m' → 5400.0, 'inf' → infinity.

    Raises ``ValueError`` for anything else.
    """
    text = text.strip().lower()
    parts = _PART.findall(text)
    if parts and not _PART.sub("", text).strip():
        return sum(float(number) * _SECONDS[unit] for number, unit in parts)
    seconds = float(text)
    if math.isnan(seconds):
        raise ValueError("not a number")
    return seconds
