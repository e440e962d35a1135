"""All ranks wait in one call, each in a round of its own: one of them left the call out in an earlier round.

No history tells of that round. What is left of it: the count of the loop around the call, where a frame on every stack
holds it, and what stands on the way to the call, from the outermost loop on, under which one rank alone left something
behind, ran a line or wrote one. Example: all four ranks wait in the all_reduce of sync(), and

    12  for x, y in batches:
    13      if not self.guard.accepts(model):     # which has counted self.guard.rejected = 1 on rank 2, and 0 elsewhere
    14          continue
    15      self.sync()

→ rank 2, by what accepts() goes by.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hangdoc.diagnosis.explanation import Explanation
from hangdoc.model.message import Condition
from hangdoc.model.process import Frame


@dataclass(frozen=True, slots=True)
class SkippedRound(Explanation):
    """The culprits left the call out in an earlier round of ``loop``, in which all wait now."""

    at: Frame
    loop: Condition
    conditions: tuple[Condition, ...] = ()
    """Those on the way to the call by which the culprits alone left something behind."""
    shown: dict[str, dict[int, str]] = field(default_factory=dict)
    """Name → rank → value, of what they left behind, or counts the rounds."""
