"""This process among the others."""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.distributed as dist

from settings.schema import WorldSettings


@dataclass(frozen=True)
class World:
    rank: int
    size: int
    local_rank: int

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    @property
    def device(self) -> torch.device:
        if torch.cuda.is_available():
            return torch.device("cuda", self.local_rank)
        return torch.device("cpu")

    @classmethod
    @contextlib.contextmanager
    def joined(cls, settings: WorldSettings) -> Iterator[World]:
        torch.set_num_threads(settings.threads)
        backend = settings.backend
        if backend == "nccl" and not torch.cuda.is_available():
            backend = "gloo"
        dist.init_process_group(backend)
        try:
            world = cls(dist.get_rank(), dist.get_world_size(), int(os.environ.get("LOCAL_RANK", "0")))
            random.seed(settings.seed + world.rank)
            torch.manual_seed(settings.seed)
            yield world
        finally:
            if dist.is_initialized():
                dist.destroy_process_group()
