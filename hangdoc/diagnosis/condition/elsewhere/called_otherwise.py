"""One call that ran different functions on the two sides: its object, or the function itself, is another one there.

The sides then diverged where that object was chosen, at no condition in either function. Example, with rank 3 in
Scaled.reduce() and the others in Plain.reduce():

    59  self.reducer = REGISTRY[cfg["reducer"]](world)
    66  self.reducer.reduce(grads)

Both sides must have come to the call in the same round of all loops around it, or what it calls must stay: a side that
has gone on to `self.phase = Main()` one call too early is in another function, too, and another line sent it there.
"""

from __future__ import annotations

from dataclasses import dataclass

from hangdoc.model.message import Condition


@dataclass(frozen=True, slots=True)
class CalledOtherwise:
    """``chosen``: the line that chose what is called, the call itself where that is not known; ``name``: what it is
    called by; ``is_call``: ``chosen`` is the call."""

    name: str
    chosen: Condition
    is_call: bool
    by_rank: bool = False
    """A test of the rank chooses it there: `Leader() if rank == 0 else Follower()`."""
