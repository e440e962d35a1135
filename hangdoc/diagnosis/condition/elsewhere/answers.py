"""Tests by which something is answered or set, as they are told of a condition that asks for it.

Example: `if self.guard.spiked(params):` (train.py:86), and spiked() returns True under `if p.grad.norm() > self.limit:`
(guard.py:57) → spiked(), by that test.
"""

from __future__ import annotations

from dataclasses import dataclass

from hangdoc.model.message import Condition


@dataclass(frozen=True, slots=True)
class Answer:
    """``function`` answers by these tests, in the order of its lines."""

    function: str
    tests: tuple[Condition, ...]
    how: str = "is decided by"
    subject: str = ""
    """What is decided, where that is not what the function answers."""
    sets: bool = False
    """The one test is the statement that sets it, as `last = rank == world - 1` does."""
