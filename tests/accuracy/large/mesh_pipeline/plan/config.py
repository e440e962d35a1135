from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Config:
    stages: int
    replicas: int
    steps: int
    micro_batches: int
    samples: int
    width: int
    vocabulary: int
    rate: float
    momentum: float
    seed: int
    folder: str
    archive_every: int
    usual_length: int
    long_length: int
    long_at: frozenset[tuple[int, int]]
    memory: dict[str, int] = field(default_factory=dict)
    slow_factor: float = 3.0
    book_once: bool = False

    @property
    def ranks(self) -> int:
        return self.stages * self.replicas

    def budget(self, rank: int) -> int:
        """Characters of activations that a rank may keep."""
        own = self.memory.get(f"rank {rank}")
        return own if own is not None else self.memory.get("default", 1 << 30)

    def check(self) -> None:
        if self.stages < 2:
            raise ValueError("a pipeline has at least two stages")
        if self.micro_batches < self.stages:
            raise ValueError("fewer micro-batches than stages leave most of the pipeline empty")
        for step, micro in self.long_at:
            if not (0 <= micro < self.micro_batches and step >= 0):
                raise ValueError(f"there is no micro-batch {micro} in step {step}")
