"""Small decisions that all ranks take together."""

from __future__ import annotations

import torch
import torch.distributed as dist


def largest(value: float) -> float:
    """The largest of the ranks' values."""
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return value
    shared = torch.tensor(float(value), dtype=torch.float64)
    dist.all_reduce(shared, op=dist.ReduceOp.MAX)
    return float(shared)


def anybody(flag: bool) -> bool:
    return largest(1.0 if flag else 0.0) > 0


def from_first(value: float) -> float:
    shared = torch.tensor(float(value), dtype=torch.float64)
    if dist.is_initialized() and dist.get_world_size() > 1:
        dist.broadcast(shared, src=0)
    return float(shared)
