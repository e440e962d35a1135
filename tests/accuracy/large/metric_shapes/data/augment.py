"""Noise on the tokens of a training text, drawn by each rank for itself."""

from __future__ import annotations

import random

from config.schema import DataSettings
from data.corpus import RARE, UNKNOWN


def augment(tokens: tuple[int, ...], settings: DataSettings, chance: random.Random) -> tuple[int, ...]:
    noisy = list(tokens)
    if len(noisy) > 2 and chance.random() < settings.swap_words:
        place = chance.randrange(len(noisy) - 1)
        noisy[place], noisy[place + 1] = noisy[place + 1], noisy[place]
    if settings.drop_words:
        kept = [token for token in noisy if token == RARE or chance.random() >= settings.drop_words]
        noisy = kept if len(kept) >= 2 else noisy
    if chance.random() < 0.05:
        noisy[chance.randrange(len(noisy))] = UNKNOWN
    return tuple(noisy)
