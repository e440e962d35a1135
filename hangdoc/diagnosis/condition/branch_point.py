"""A guard at which two sides can have diverged, and what can be said of it by itself."""

from __future__ import annotations

from dataclasses import dataclass

from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.source.guards import Guard
from hangdoc.model.process import Frame


@dataclass(frozen=True, slots=True)
class BranchPoint:
    """A guard at which two sides can have diverged.

    Example: side 0 is at `save()` in `if rank == 0: save()`, side 1 after it → the `if`, with ``guarded`` 0 and
    ``rank_like`` True.
    """

    guard: Guard
    file: str
    function: str
    line: int
    """The line under the guard that the guarded side is at."""
    guarded: int
    """The side (0 or 1) whose call is under the guard."""
    score: float
    """How likely it is that the sides diverged here, see ``scores``."""
    level: int = 0
    """How far in the guard's function is, counted in user frames; 0 is the outermost."""
    rank_like: bool = False
    """The condition depends on the rank."""
    always: bool = False
    """The condition depends on the rank alone, so it never changes on one rank."""
    differs: bool = False
    """A value in the condition differs between the sides."""
    alike: bool = False
    """Every value that it tests was seen, and is the same on both sides."""
    even: bool = False
    """It tests what counts the rounds of a loop that both sides are in, and else what is the same on both sides: each
    of them decided it alike in each round. Example: `if step % self.every == 0:`."""
    both_arms: bool = False
    """The sides are in the two arms of one condition."""
    uneven: bool = False
    """One side has left this loop and the other has not; no counter contradicts that."""
    of_library: bool = False
    """It is a library's, which the user's code only runs."""
    made: str = ""
    """The class of the object that is made under it, where the call is in a method of that object."""
    registered: str = ""
    """The handler that is registered under it, where the call is in that handler."""
    doubt: str = ""
    """What else would look the same as this divergence."""
    own_arm: bool = False
    """It is around the partner of the guarded side's call, in the other arm of a condition on the rank: the side that
    is not guarded was under it, and has left it."""
    quiet: bool = False
    """It decides in which rounds a library leaves the call out (no_sync), by the `with` that the call is under."""
    sole: bool = False
    """No other guard lies between the sides."""
    seen: bool = False
    """The interpreters' counters show that the sides took it differently, see ``tested``."""
    recorded: bool = False
    """The recorded tests show that the sides parted here, see ``execution.parting``."""
    left_at: Guard | None = None
    """The condition at which the side that is not guarded was recorded to leave this loop."""
    given: tuple[tuple[str, tuple[tuple[int, str], ...]], ...] = ()
    """(name, (rank, value) …) of what the condition tests and both sides' callers show, see ``as_called``."""


def is_telling(point: BranchPoint) -> bool:
    """True if the condition's own values show that the sides took it differently."""
    return point.differs or point.rank_like or point.both_arms or bool(point.given or point.made or point.registered)


def is_left_by_exception(point: BranchPoint) -> bool:
    """True if the other side must have raised: the guarded one is in a try body, or past a handler that jumps."""
    return point.guard.kind == "try" and (point.guard.is_tried or not point.guard.taken)


def branch_point(guard: Guard, frame: Frame, guarded: int, score: float, *, level: int = 0) -> BranchPoint:
    """The guard as a branch point of the side that is at ``frame``."""
    return BranchPoint(guard, frame.file, plain(frame.function), frame.line, guarded, score, level)
