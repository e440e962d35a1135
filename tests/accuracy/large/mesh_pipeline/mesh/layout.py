from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Place:
    """Where a rank stands. Stages of a replica have consecutive ranks."""

    stage: int
    replica: int
    stages: int
    replicas: int

    @classmethod
    def of(cls, rank: int, stages: int, replicas: int) -> Place:
        if not 0 <= rank < stages * replicas:
            raise ValueError(f"rank {rank} has no place in {replicas} replicas of {stages} stages")
        return cls(rank % stages, rank // stages, stages, replicas)

    @property
    def rank(self) -> int:
        return self.replica * self.stages + self.stage

    @property
    def is_first(self) -> bool:
        return self.stage == 0

    @property
    def is_last(self) -> bool:
        return self.stage == self.stages - 1

    @property
    def before(self) -> int | None:
        return None if self.is_first else self.rank - 1

    @property
    def after(self) -> int | None:
        return None if self.is_last else self.rank + 1

    def pipeline(self) -> list[int]:
        return [self.replica * self.stages + stage for stage in range(self.stages)]

    def sisters(self) -> list[int]:
        """The same stage in all replicas."""
        return [replica * self.stages + self.stage for replica in range(self.replicas)]

    def __str__(self) -> str:
        return f"s{self.stage}r{self.replica}"
