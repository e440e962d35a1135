"""What the callbacks may look at."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class StepState:
    epoch: int = 0
    step: int = 0
    steps: int = 0
    loss: float = 0.0
    norm: float = 0.0
    rate: float = 0.0
    samples: int = 0
    seconds: float = 0.0
    vetoed: bool = False
    reports: list = field(default_factory=list)

    @property
    def is_last(self):
        return self.step + 1 == self.steps


@dataclass(frozen=True)
class EpochRow:
    epoch: int
    loss: float
    error: float
    skill: float
    left_out: int
