"""Reductions of a few numbers."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.distributed as dist

from ranks.context import RankContext


def summed(values: Mapping[str, float], context: RankContext) -> dict[str, float]:
    """Sums over the ranks, all of which give the same names."""
    names = sorted(values)
    if context.size == 1 or not names:
        return dict(values)
    tensor = torch.tensor([values[name] for name in names], dtype=torch.float64)
    dist.all_reduce(tensor)
    return dict(zip(names, tensor.tolist(), strict=True))
