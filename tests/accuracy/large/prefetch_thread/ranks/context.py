"""Who this process is among the others."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

import torch.distributed as dist

from settings.model import RankSettings


@dataclass(frozen=True, slots=True)
class RankContext:
    rank: int
    size: int

    @property
    def leads(self) -> bool:
        """True on rank 0."""
        return self.rank == 0

    def part(self, count: int) -> range:
        """The share of this rank of ``count`` things; the first ranks have one more where it is not even."""
        each, over = divmod(count, self.size)
        start = self.rank * each + min(self.rank, over)
        return range(start, start + each + (1 if self.rank < over else 0))


@contextlib.contextmanager
def joined(settings: RankSettings) -> Iterator[RankContext]:
    """The context of this rank while the process group exists."""
    if "LOCAL_RANK" not in os.environ:
        raise SystemExit("torchrun starts this")
    dist.init_process_group(settings.backend, timeout=timedelta(minutes=settings.minutes))
    try:
        yield RankContext(dist.get_rank(), dist.get_world_size())
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
