from __future__ import annotations

from dataclasses import dataclass

from plan.config import Config


@dataclass(frozen=True)
class Micro:
    """A micro-batch: how large it is, which every stage must know beforehand."""

    step: int
    index: int
    samples: int
    length: int

    @property
    def cost(self) -> int:
        return self.samples * self.length

    def shape(self, width: int) -> tuple[int, int, int]:
        return self.samples, self.length, width


def micros_of(step: int, config: Config) -> list[Micro]:
    """Long documents come in micro-batches of their own."""
    found = []
    for index in range(config.micro_batches):
        is_long = (step, index) in config.long_at
        found.append(Micro(step, index, config.samples, config.long_length if is_long else config.usual_length))
    return found
