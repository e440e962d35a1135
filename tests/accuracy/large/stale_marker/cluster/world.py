"""The ranks of the job and what they exchange."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist

from settings.ini import Configuration


class World:
    def __init__(self) -> None:
        self.rank = dist.get_rank()
        self.size = dist.get_world_size()

    @property
    def leads(self) -> bool:
        return self.rank == 0

    def meet(self) -> None:
        dist.barrier()

    def gather(self, values: Sequence[float]) -> list[list[float]]:
        """The values of every rank, in the order of the ranks."""
        own = torch.tensor([float(value) for value in values], dtype=torch.float64)
        rows = [torch.empty_like(own) for _ in range(self.size)]
        dist.all_gather(rows, own)
        return [row.tolist() for row in rows]

    def total(self, tensor: torch.Tensor) -> torch.Tensor:
        """The sum over the ranks, in place."""
        dist.all_reduce(tensor)
        return tensor

    def tell(self, value: Any) -> Any:
        """What the leader has."""
        box = [value if self.leads else None]
        dist.broadcast_object_list(box, src=0)
        return box[0]


@contextmanager
def joined(configuration: Configuration) -> Iterator[World]:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=datetime.timedelta(minutes=40))
    world = World()
    try:
        yield world
        unused = configuration.unused()
        if unused and world.leads:
            print(f"settings that nobody read: {', '.join(unused)}")
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
