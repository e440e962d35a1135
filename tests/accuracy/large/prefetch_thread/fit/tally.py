"""What a rank counts of its own steps."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field


@dataclass(slots=True)
class Tally:
    """Losses of the last steps, right answers by kind, and streaks."""

    recent: deque[float] = field(default_factory=lambda: deque(maxlen=6))
    right: Counter[int] = field(default_factory=Counter)
    seen: Counter[int] = field(default_factory=Counter)
    lowest: float = float("inf")
    rises: int = 0
    resized: int = 0

    def add(self, loss: float, told: list[int], kinds: list[int]) -> None:
        """Count one batch."""
        if self.recent and loss > self.recent[-1]:
            self.rises += 1
        self.recent.append(loss)
        self.lowest = min(self.lowest, loss)
        for answer, kind in zip(told, kinds, strict=True):
            self.seen[kind] += 1
            if answer == kind:
                self.right[kind] += 1

    @property
    def mean(self) -> float:
        """Of the last losses."""
        return sum(self.recent) / len(self.recent) if self.recent else float("nan")

    def weakest(self) -> int | None:
        """The kind with the lowest share of right answers, of those that were seen often."""
        often = [kind for kind, count in self.seen.items() if count >= 5]
        return min(often, key=lambda kind: self.right[kind] / self.seen[kind]) if often else None
