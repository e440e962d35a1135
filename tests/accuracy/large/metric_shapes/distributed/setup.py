"""Joining and leaving the job."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

from config.schema import RunSettings


@dataclass(frozen=True)
class Ranks:
    rank: int
    world: int
    local: int

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    @property
    def is_first_of_host(self) -> bool:
        return self.local == 0


@contextmanager
def joined(settings: RunSettings) -> Iterator[Ranks]:
    torch.set_num_threads(1)
    if "RANK" not in os.environ:
        raise SystemExit("start me with torchrun")
    dist.init_process_group("gloo", timeout=timedelta(seconds=settings.timeout))
    try:
        yield Ranks(dist.get_rank(), dist.get_world_size(), int(os.environ.get("LOCAL_RANK", "0")))
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
