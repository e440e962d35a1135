"""Gradients of all ranks, averaged."""

from __future__ import annotations

import torch
from torch import nn

from cluster.world import World


def average_gradients(model: nn.Module, world: World, weight: float) -> float:
    """Average with weights: a rank whose windows have gaps counts for less. Returns the sum of the weights."""
    flat = [torch.tensor([weight])]
    for parameter in model.parameters():
        if parameter.grad is None:
            flat.append(torch.zeros(parameter.numel()))
        else:
            flat.append(parameter.grad.reshape(-1) * weight)
    summed = world.total(torch.cat(flat))
    weights = float(summed[0])
    if weights <= 0:
        return 0.0
    start = 1
    for parameter in model.parameters():
        part = summed[start : start + parameter.numel()].view_as(parameter) / weights
        start += parameter.numel()
        if parameter.grad is None:
            parameter.grad = part.clone()
        else:
            parameter.grad.copy_(part)
    return weights
