"""From a context to the wind of the next hours."""

from __future__ import annotations

import torch
from torch import nn

from network.blocks import Mix, start_weights


class Forecaster(nn.Module):
    """(batch, hours, channels) to (batch, horizon)."""

    def __init__(self, settings, channels, hours=24, horizon=6):
        super().__init__()
        self.lift = nn.Linear(channels, settings.width)
        self.mixes = nn.ModuleList(Mix(hours, settings.width, settings) for _ in range(settings.layers))
        self.head = nn.Linear(hours * settings.width, horizon)
        start_weights(self)

    def forward(self, context):
        if context.dim() == 2:
            context = context.unsqueeze(0)
        x = self.lift(context)
        for mix in self.mixes:
            x = mix(x)
        return self.head(x.flatten(1))

    def size(self):
        return sum(parameter.numel() for parameter in self.parameters() if parameter.requires_grad)


def huber(forecast, target, night, *, night_weight=0.7, edge=2.0):
    """Mean Huber loss; hours of the night count for less."""
    error = (forecast - target).abs()
    loss = torch.where(error <= edge, 0.5 * error**2, edge * (error - 0.5 * edge)).mean(dim=1)
    weight = torch.where(night, night_weight, 1.0)
    total = weight.sum()
    if float(total) == 0.0:
        return loss.sum() * 0.0
    return (loss * weight).sum() / total
