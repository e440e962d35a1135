"""Lion: sign of a momentum. One table of state beside the table of parameters."""

import math
from typing import NamedTuple

import torch

from surrogate.network import Parameters


class Moments(NamedTuple):
    table: dict[str, torch.Tensor]
    step: int


def new_moments(parameters: Parameters) -> Moments:
    return Moments({name: torch.zeros_like(value) for name, value in parameters.items()}, 0)


def rate_at(step: int, peak: float, warmup: int, total: int) -> float:
    if step < warmup:
        return peak * (step + 1) / warmup
    done = (step - warmup) / max(1, total - warmup)
    return peak * 0.5 * (1 + math.cos(math.pi * min(1.0, done)))


@torch.no_grad()
def updated(
    parameters: Parameters, gradients: dict[str, torch.Tensor], moments: Moments, rate: float, decay: float = 0.001
) -> Moments:
    """Moves the parameters in place; returns the new moments."""
    table = {}
    for name, value in parameters.items():
        gradient, momentum = gradients[name], moments.table[name]
        direction = (0.9 * momentum + 0.1 * gradient).sign()
        if value.ndim > 1:
            value.mul_(1 - rate * decay)
        value.sub_(0.1 * rate * direction)
        table[name] = 0.99 * momentum + 0.01 * gradient
    return Moments(table, moments.step + 1)


def clipped(gradients: dict[str, torch.Tensor], most: float) -> tuple[dict[str, torch.Tensor], float]:
    norm = math.sqrt(sum(float(g.pow(2).sum()) for g in gradients.values()))
    if norm <= most or most <= 0:
        return gradients, norm
    return {name: g * (most / norm) for name, g in gradients.items()}, norm
