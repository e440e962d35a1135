"""Numbers on which ranks agree."""

from __future__ import annotations

import torch
import torch.distributed as dist


def smallest(value: int) -> int:
    """The least of all ranks' values."""
    if dist.get_world_size() == 1:
        return value
    number = torch.tensor(value)
    dist.all_reduce(number, op=dist.ReduceOp.MIN)
    return int(number)


def mean(value: float) -> float:
    number = torch.tensor(value, dtype=torch.float64)
    dist.all_reduce(number)
    return float(number) / dist.get_world_size()
