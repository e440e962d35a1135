from __future__ import annotations

import time
from types import TracebackType


class StepClock:
    """Seconds of each step, and which were slow beside the median."""

    def __init__(self, factor: float) -> None:
        self.factor = factor
        self.steps: list[float] = []
        self.slow: list[int] = []
        self._began = 0.0

    def __enter__(self) -> StepClock:
        self._began = time.perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None:
            return
        took = time.perf_counter() - self._began
        if self.steps and took > self.factor * self.median:
            self.slow.append(len(self.steps))
        self.steps.append(took)

    @property
    def median(self) -> float:
        ordered = sorted(self.steps)
        return ordered[len(ordered) // 2] if ordered else 0.0

    @property
    def last(self) -> float:
        return self.steps[-1] if self.steps else 0.0
