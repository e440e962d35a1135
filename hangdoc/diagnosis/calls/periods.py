"""Calls of sizes that come round again and again: a model's parameters one by one, the buckets of a backward pass."""

from __future__ import annotations

from collections.abc import Hashable, Sequence


def period(values: Sequence[Hashable]) -> int:
    """After how many values they repeat to the end, having done so at least once; 0 where they do not.

    Example: a, b, b, a, b, b, a → 3.
    """
    lengths = range(1, len(values) // 2 + 1)
    return next((n for n in lengths if all(values[i] == values[i - n] for i in range(n, len(values)))), 0)
