"""Values in a recorder's dump, none of which is trusted: each is read as its type, within limits, or as nothing."""

from __future__ import annotations

from typing import Any

_MOST_DIMENSIONS = 64
"""Of a tensor, and tensors of a call; chosen by hand: far more than a program has."""
LONGEST_TEXT = 4096
"""Characters; chosen by hand: the longest path that Linux opens (PATH_MAX)."""


def text(value: Any) -> str:
    """A text, cut to ``LONGEST_TEXT``; a number as text; '' for anything else."""
    return (value if isinstance(value, str) else str(value) if isinstance(value, int) else "")[:LONGEST_TEXT]


def texts(values: Any) -> tuple[str, ...]:
    """A list of texts; () for anything else."""
    return tuple(text(value) for value in values[:_MOST_DIMENSIONS]) if isinstance(values, list) else ()


def whole(value: Any) -> int:
    """A whole number, also as text (JSON dumps); 0 for anything else. Raises ``ValueError`` for a text that is none."""
    if isinstance(value, str) and len(value) <= 24:
        value = int(value)
    return value if type(value) is int and abs(value) < 1 << 64 else 0


def sizes(values: Any) -> tuple[tuple[int, ...], ...]:
    """The shape of each tensor; () for what is no list of lists."""
    if not isinstance(values, list):
        return ()
    return tuple(
        tuple(whole(size) for size in shape[:_MOST_DIMENSIONS])
        for shape in values[:_MOST_DIMENSIONS]
        if isinstance(shape, list)
    )
