"""A message of a device's batch that its peer cannot take: of another size, or to a rank that expects none.

Batches and messages hold up a device as calls do, so every rank waits in the end, and the wait-for graph shows a circle
or none at all. What the rank always did at that line tells the two sides apart.
"""

from __future__ import annotations

from dataclasses import dataclass

from hangdoc.diagnosis.explanation import Explanation
from hangdoc.model.process import Frame

_Sizes = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class UnequalSizes(Explanation):
    """``sender`` sends another number of elements than ``receiver`` expects."""

    sender: int
    receiver: int
    sent: _Sizes
    wanted: _Sizes
    sent_at: Frame | None
    wanted_at: Frame | None
