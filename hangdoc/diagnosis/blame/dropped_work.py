"""A message that both sides have issued and that never arrives: whoever issued it asynchronously let go of its work.

gloo withdraws what its last handle lets go of before the message has left, so that `dist.isend(x, 1)`, whose result
nobody keeps, sends only if rank 1 is already in its recv. The histories show it: the message of the rank that waits has
its partner, which is no longer under way.
"""

from __future__ import annotations

from dataclasses import dataclass

from hangdoc.diagnosis.explanation import Explanation
from hangdoc.model.process import Frame


@dataclass(frozen=True, slots=True)
class DroppedWork(Explanation):
    """``rank`` issued, at ``frame``, the ``way`` ('send' or 'recv') that ``waiter`` waits for, and let go of it."""

    rank: int
    waiter: int
    way: str
    frame: Frame | None
