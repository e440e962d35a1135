"""Random changes of pictures. The source is the thread's own."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import torch

from settings.model import FeedSettings

Change = Callable[[torch.Tensor, random.Random], torch.Tensor]


def flip(picture: torch.Tensor, chance: random.Random) -> torch.Tensor:
    """Left for right, or upside down."""
    return picture.flip(-1 if chance.random() < 0.5 else -2)


def shade(picture: torch.Tensor, chance: random.Random) -> torch.Tensor:
    """Darker to one side."""
    ramp = torch.linspace(-0.5, 0.5, picture.shape[-1])
    if chance.random() < 0.5:
        ramp = ramp[:, None]
    return picture + ramp


def cut(picture: torch.Tensor, chance: random.Random) -> torch.Tensor:
    """A small square is missing."""
    side = picture.shape[-1]
    size = chance.randrange(1, max(2, side // 3))
    top, left = chance.randrange(side - size), chance.randrange(side - size)
    picture = picture.clone()
    picture[..., top : top + size, left : left + size] = 0.0
    return picture


class Changer:
    """Applies each change with its probability."""

    def __init__(self, settings: FeedSettings, seed: int):
        shares = ((flip, settings.flip), (shade, settings.shade), (cut, settings.cut))
        self.changes: list[tuple[Change, float]] = [(change, share) for change, share in shares if share > 0]
        self.chance = random.Random(seed)
        self.made: Counter[str] = Counter()

    def __call__(self, picture: torch.Tensor) -> torch.Tensor:
        for change, share in self.changes:
            if self.chance.random() < share:
                picture = change(picture, self.chance)
                self.made[change.__name__] += 1
        return picture
