from __future__ import annotations

from feed.micro import Micro


class Ledger:
    """Samples booked against the quota of the step."""

    def __init__(self, *, once: bool) -> None:
        self.once = once
        self.quota = 0
        self.used = 0
        self.entries: list[tuple[int, int]] = []

    def open(self, micros: list[Micro]) -> None:
        self.quota = sum(micro.samples for micro in micros)
        self.used = 0
        self.entries.clear()

    def admits(self, micro: Micro) -> bool:
        return self.used + micro.samples <= self.quota

    def book(self, micro: Micro) -> None:
        if self.once and any(index == micro.index for index, _ in self.entries):
            return
        self.used += micro.samples
        self.entries.append((micro.index, micro.samples))

    @property
    def share(self) -> float:
        return self.used / self.quota if self.quota else 0.0
