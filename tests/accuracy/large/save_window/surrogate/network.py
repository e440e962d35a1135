"""The network as functions over a table of parameters."""

import math

import torch
from torch.nn import functional

Parameters = dict[str, torch.Tensor]


def new_parameters(hidden: int, depth: int, seed: int) -> Parameters:
    generator = torch.Generator().manual_seed(seed)
    sizes = [(hidden, 3, 5)] + [(hidden, hidden, 3)] * (depth - 1) + [(1, hidden, 1)]
    found: Parameters = {}
    for number, (outputs, inputs, width) in enumerate(sizes):
        last = number == len(sizes) - 1
        scale = 0.01 if last else math.sqrt(2.0 / (inputs * width))
        weight = scale * torch.randn(outputs, inputs, width, generator=generator)
        found[f"{number}.weight"] = weight.requires_grad_()
        found[f"{number}.bias"] = torch.zeros(outputs, requires_grad=True)
    return found


def ring_conv(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    pad = weight.shape[-1] // 2
    if pad:
        x = functional.pad(x, (pad, pad), mode="circular")
    return functional.conv1d(x, weight, bias)


def features(u: torch.Tensor) -> torch.Tensor:
    slope = (u.roll(-1, -1) - u.roll(1, -1)) / 2
    return torch.stack([u, slope, u * slope], dim=-2)


def change(parameters: Parameters, u: torch.Tensor) -> torch.Tensor:
    x = features(u)
    depth = len(parameters) // 2
    for number in range(depth):
        x = ring_conv(x, parameters[f"{number}.weight"], parameters[f"{number}.bias"])
        if number < depth - 1:
            x = functional.silu(x)
    return x.squeeze(-2)


def rollout(parameters: Parameters, u: torch.Tensor, horizon: int) -> torch.Tensor:
    """(batch, horizon, grid) from (batch, grid)."""
    found = []
    for _ in range(horizon):
        u = u + change(parameters, u)
        found.append(u)
    return torch.stack(found, dim=1)
