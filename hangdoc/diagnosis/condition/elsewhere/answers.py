"""By what a function answers that a condition asks: the reason lies there, and not in the condition.

Example: `if self.guard.spiked(params):` (train.py:86) was True on rank 1 alone, and

    55  def spiked(self, params):
    56      for p in params:
    57          if p.grad.norm() > self.limit:
    58              return True
    59      return False

→ spiked() answers by `if p.grad.norm() > self.limit:` at line 57.
"""

from __future__ import annotations

from dataclasses import dataclass

from hangdoc.model.message import Condition

MOST_TESTS = 3
"""Tests that are told of one condition: more are no reason any more. Chosen by hand."""


@dataclass(frozen=True, slots=True)
class Answer:
    """``function`` answers by these tests, in the order of its lines."""

    function: str
    tests: tuple[Condition, ...]
    queue: str = ""
    """The queue that it fills under these conditions, where the item tested was taken from it."""
    how: str = "is decided by"
    subject: str = ""
    """What is decided, where that is not what the function answers."""
