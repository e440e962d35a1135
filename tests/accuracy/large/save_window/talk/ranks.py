import contextlib
import os
from collections.abc import Iterator
from typing import NamedTuple

import torch
import torch.distributed as dist


class Here(NamedTuple):
    rank: int
    size: int

    @property
    def leads(self) -> bool:
        return self.rank == 0


@contextlib.contextmanager
def joined(backend: str) -> Iterator[Here]:
    threads = int(os.environ.get("SURROGATE_THREADS", "1"))
    torch.set_num_threads(threads if threads > 0 else 1)
    dist.init_process_group(backend if backend in ("gloo", "nccl") else "gloo")
    try:
        yield Here(dist.get_rank(), dist.get_world_size())
    finally:
        dist.destroy_process_group()


def largest(value: float) -> float:
    """Over all ranks."""
    row = torch.tensor(value, dtype=torch.float64)
    dist.all_reduce(row, op=dist.ReduceOp.MAX)
    return row.item()
