"""A panel of judges: each rank judges its part of pictures that all could have drawn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from feed.decode import decoded
from ranks.context import RankContext
from ranks.reduce import summed
from settings.model import JudgeSettings
from storage.camera import CAMERAS, KINDS, drawn
from storage.pack import Picture


@dataclass(frozen=True, slots=True)
class Verdict:
    accuracy: float
    doubt: float
    """Share of pictures whose answer changes when they are mirrored."""
    confused: tuple[str, str] | None


class Panel:
    """Draws its pictures once."""

    def __init__(self, settings: JudgeSettings, context: RankContext, side: int = 8):
        self.settings = settings
        self.context = context
        pictures = [self.draw(number) for number in context.part(settings.pictures)]
        self.kinds = torch.tensor([picture.kind for picture in pictures])
        self.pictures = torch.stack([decoded(picture, side) for picture in pictures])

    @staticmethod
    def draw(number: int) -> Picture:
        """The picture of a number, the same on each rank."""
        chance = np.random.default_rng(90_000 + number)
        camera = CAMERAS[int(chance.integers(len(CAMERAS)))]
        kind = number % len(KINDS)
        picture = drawn(KINDS[kind], camera.side, chance)
        if camera.grain > 0.1:
            picture = picture * 0.9
        picture = np.clip(picture + chance.normal(0, camera.grain, picture.shape), 0, 1)
        return Picture(kind, (picture * 255).astype(np.uint8))

    def pieces(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Pictures and kinds, a few at a time."""
        for start in range(0, len(self.kinds), self.settings.piece):
            end = start + self.settings.piece
            yield self.pictures[start:end], self.kinds[start:end]

    @torch.no_grad()
    def judge(self, model: nn.Module) -> Verdict:
        """A collective: the counts of all ranks are added."""
        was_training = model.training
        model.eval()
        counts = {"right": 0.0, "all": 0.0, "doubt": 0.0}
        pairs = {f"{one}>{other}": 0.0 for one in KINDS for other in KINDS if one != other}
        for pictures, kinds in self.pieces():
            told = model(pictures).argmax(1)
            counts["right"] += float((told == kinds).sum())
            counts["all"] += len(kinds)
            if self.settings.twice:
                again = model(pictures.flip(-1)).argmax(1)
                counts["doubt"] += float((again != told).sum())
            for answer, kind in zip(told.tolist(), kinds.tolist(), strict=True):
                if answer != kind:
                    pairs[f"{KINDS[kind]}>{KINDS[answer]}"] += 1
        if was_training:
            model.train()
        total = summed({**counts, **pairs}, self.context)
        mistakes = {name: total[name] for name in pairs if total[name] > 0}
        worst = max(mistakes, key=lambda name: mistakes[name]) if mistakes else None
        confused = tuple(worst.split(">")) if worst else None
        return Verdict(total["right"] / total["all"], total["doubt"] / total["all"], confused)
