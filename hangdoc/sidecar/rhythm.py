"""Decides when a job is stalled. Pure arithmetic over the moments at which it moved. Times are monotonic seconds."""

from __future__ import annotations

LEAST_PATIENCE = 30.0
MOST_PATIENCE = 1800.0
GAPS_OF_PATIENCE = 3.0
FIRST_RECAPTURE = 5.0
LONGEST_RECAPTURE = 60.0


class Rhythm:
    """Learns how long a job may be quiet, unless the user set it.

    Untold, patience is three times the longest quiet time after which the job went on by itself: evaluation
    and checkpoints make a rhythm of their own. It is never under half a minute, never over half an hour.
    """

    def __init__(self, stall_after: float | None, now: float) -> None:
        self._fixed = stall_after
        self._last_move = now
        self._longest_gap = 0.0

    @property
    def patience(self) -> float:
        """Seconds of quiet that make a stall."""
        if self._fixed is not None:
            return self._fixed
        return min(max(LEAST_PATIENCE, GAPS_OF_PATIENCE * self._longest_gap), MOST_PATIENCE)

    def moved(self, now: float) -> float:
        """The job made progress; returns how long it had been quiet."""
        gap = now - self._last_move
        self._longest_gap = max(self._longest_gap, gap)
        self._last_move = now
        return gap

    def changed(self, now: float) -> None:
        """A rank came or went: patience starts anew, and nothing is learnt about the rhythm."""
        self._last_move = now

    def slept(self, seconds: float) -> None:
        """We were stopped ourselves (ctrl-Z, a suspended laptop), and so most likely was the job."""
        self._last_move += seconds

    def quiet_for(self, now: float) -> float:
        """Seconds since the last progress."""
        return now - self._last_move


class Recaptures:
    """When to look again while a stall lasts: each time after twice as long, once when patience ends, and from then on
    anew: that a rank seemed to work at that very moment must not put off for long what was announced."""

    def __init__(self, give_up_after: float) -> None:
        self._give_up_after = give_up_after
        self._next = 0.0
        self._interval = FIRST_RECAPTURE

    def due(self, quiet: float, patience: float) -> bool:
        """True if a look is due after ``quiet`` seconds without progress."""
        return quiet >= max(patience, self._next)

    def took(self, quiet: float) -> None:
        """A look was taken after ``quiet`` seconds."""
        self._next = quiet + self._interval
        self._interval = min(2 * self._interval, LONGEST_RECAPTURE)
        if quiet < self._give_up_after < self._next:
            self._next, self._interval = self._give_up_after, FIRST_RECAPTURE
