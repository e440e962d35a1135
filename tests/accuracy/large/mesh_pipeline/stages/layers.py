from __future__ import annotations

import torch
from torch import nn


class Shift(nn.Module):
    """Sees the position before."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([torch.zeros_like(x[:, :1]), x[:, :-1]], dim=1)


class MixLayer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.shift = Shift()
        self.up = nn.Linear(2 * width, 3 * width)
        self.down = nn.Linear(3 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        return x + self.down(torch.tanh(self.up(torch.cat([y, self.shift(y)], dim=-1))))


def part_of_model(stage: int, stages: int, width: int, vocabulary: int) -> nn.Module:
    """The layers of one stage. Inner stages have two."""
    match stage:
        case 0:
            return nn.Sequential(nn.Embedding(vocabulary, width), MixLayer(width))
        case last if last == stages - 1:
            return nn.Sequential(MixLayer(width), nn.LayerNorm(width), nn.Linear(width, vocabulary))
        case inner if 0 < inner < stages:
            return nn.Sequential(MixLayer(width), MixLayer(width))
        case _:
            raise ValueError(f"no stage {stage} among {stages}")
