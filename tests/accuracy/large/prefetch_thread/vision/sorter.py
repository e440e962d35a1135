"""A small convolutional network."""

from __future__ import annotations

import itertools

import torch
from torch import nn

from settings.model import VisionSettings


class Stage(nn.Module):
    """Convolution, norm, and a bridge where input and output have one width."""

    def __init__(self, before: int, after: int):
        super().__init__()
        groups = 2 if after % 2 == 0 else 1
        self.body = nn.Sequential(
            nn.Conv2d(before, after, 3, padding=1, bias=False), nn.GroupNorm(groups, after), nn.SiLU()
        )
        self.bridge = nn.Identity() if before == after else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.body(x)
        return y if self.bridge is None else y + self.bridge(x)


class Sorter(nn.Module):
    """(batch, 1, side, side) to (batch, kinds)."""

    def __init__(self, settings: VisionSettings):
        super().__init__()
        widths = (1, *settings.channels)
        self.stages = nn.ModuleList(Stage(*pair) for pair in itertools.pairwise(widths))
        self.pool = settings.pool
        self.head = nn.Linear(widths[-1], settings.kinds)

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        x = pictures
        for number, stage in enumerate(self.stages):
            x = stage(x)
            if number + 1 < len(self.stages) and min(x.shape[-2:]) >= 4:
                x = nn.functional.avg_pool2d(x, 2)
        x = x.flatten(2)
        x = x.mean(2) if self.pool == "mean" else x.max(2).values
        return self.head(x)


def decayed(model: nn.Module) -> list[dict[str, object]]:
    """Parameter groups: decay for all that has more than one dimension."""
    named = [(name, each) for name, each in model.named_parameters() if each.requires_grad]
    return [
        {"params": [each for _, each in named if each.dim() > 1], "weight_decay": 1e-3},
        {"params": [each for _, each in named if each.dim() <= 1], "weight_decay": 0.0},
    ]
