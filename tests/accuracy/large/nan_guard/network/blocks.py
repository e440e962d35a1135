"""Pieces of the network."""

from __future__ import annotations

import torch
from torch import nn

ACTIVATIONS = {"gelu": nn.GELU, "relu": nn.ReLU, "tanh": nn.Tanh}


class Mix(nn.Module):
    """Mixes hours, then channels; with a bridge over both where asked."""

    def __init__(self, hours, width, settings):
        super().__init__()
        self.residual = settings.residual
        self.norm = nn.LayerNorm(width)
        self.over_hours = nn.Linear(hours, hours)
        self.over_width = nn.Sequential(nn.Linear(width, 2 * width), ACTIVATIONS[settings.activation]())
        self.back = nn.Linear(2 * width, width)
        self.dropout = nn.Dropout(settings.dropout) if settings.dropout > 0 else None

    def forward(self, x):
        y = self.over_hours(self.norm(x).transpose(1, 2)).transpose(1, 2)
        y = self.back(self.over_width(y))
        if self.dropout is not None:
            y = self.dropout(y)
        return x + y if self.residual else y


def start_weights(module):
    """Small weights for all that is linear; the last layer starts near the mean."""
    for name, parameter in module.named_parameters():
        if parameter.dim() < 2:
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
            continue
        nn.init.xavier_uniform_(parameter)
        if name.startswith("head."):
            with torch.no_grad():
                parameter.mul_(0.1)
