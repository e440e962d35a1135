"""Adds up the states of all ranks with few calls: the states of one type travel in one buffer."""

from __future__ import annotations

import logging
from collections import defaultdict

import torch
import torch.distributed as dist

from metrics.states import Metric

LOG = logging.getLogger("tagger.metrics")


def reduce_states(metrics: list[Metric], alignment: int) -> int:
    """Afterwards each rank's states are the sums over all ranks. Returns the bytes that were sent."""
    members = defaultdict(list)
    for metric in metrics:
        for name, state in metric.states.items():
            members[state.dtype].append((metric, name))
    sent = 0
    for dtype in sorted(members, key=width_of):
        states = [metric.states[name] for metric, name in members[dtype]]
        flat = pack(states, alignment)
        if not dist.is_initialized() or dist.get_world_size() == 1:
            continue
        dist.all_reduce(flat)
        sent += flat.numel() * flat.element_size()
        for (metric, name), reduced in zip(members[dtype], unpack(flat, states), strict=True):
            metric.states[name] = reduced
    return sent


def width_of(dtype: torch.dtype) -> tuple[bool, int]:
    """Counts first, then the floats, the narrow ones before the wide ones."""
    return dtype.is_floating_point, dtype.itemsize


def pack(states: list[torch.Tensor], alignment: int) -> torch.Tensor:
    flat = torch.cat([state.reshape(-1) for state in states])
    surplus = flat.numel() % alignment
    return flat if surplus == 0 else torch.cat((flat, flat.new_zeros(alignment - surplus)))


def unpack(flat: torch.Tensor, states: list[torch.Tensor]) -> list[torch.Tensor]:
    pieces, start = [], 0
    for state in states:
        pieces.append(flat[start : start + state.numel()].view_as(state))
        start += state.numel()
    if flat[start:].any():
        LOG.warning("the padding of a buffer is not zero after the reduction")
    return pieces
