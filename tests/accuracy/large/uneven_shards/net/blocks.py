"""Layers that see the past only."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


class CausalConv(nn.Module):
    def __init__(self, width: int, kernel: int) -> None:
        super().__init__()
        self.kernel = kernel
        self.conv = nn.Conv1d(width, 2 * width, kernel)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        padded = functional.pad(x.transpose(1, 2), (self.kernel - 1, 0))
        return functional.glu(self.conv(padded), dim=1).transpose(1, 2)


class Block(nn.Module):
    def __init__(self, width: int, kernel: int, dropout: float) -> None:
        super().__init__()
        self.before = nn.LayerNorm(width)
        self.mix = CausalConv(width, kernel)
        self.between = nn.LayerNorm(width)
        self.think = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.dropout = nn.Dropout(dropout) if dropout > 0 else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.dropout(self.mix(self.before(x)))
        return x + self.dropout(self.think(self.between(x)))
