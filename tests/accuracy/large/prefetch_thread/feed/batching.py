"""Batches out of single pictures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch

from feed.changes import Changer
from feed.decode import decoded
from settings.model import FeedSettings
from storage.pack import Picture


@dataclass(frozen=True, slots=True)
class Batch:
    """``pictures``: (batch, 1, side, side); ``kinds``: (batch,)."""

    pictures: torch.Tensor
    kinds: torch.Tensor
    resized: int


def batches(pictures: Iterable[Picture], settings: FeedSettings, changer: Changer) -> Iterator[Batch]:
    """Full batches; a batch has each kind at most ``batch - 1`` times, so that no batch is of one kind."""
    held: list[Picture] = []
    for picture in pictures:
        same = sum(1 for each in held if each.kind == picture.kind)
        if same >= settings.batch - 1:
            continue
        held.append(picture)
        if len(held) < settings.batch:
            continue
        tensors = [changer(decoded(each, settings.side)) for each in held]
        resized = sum(1 for each in held if each.pixels.shape[0] != settings.side)
        yield Batch(torch.stack(tensors), torch.tensor([each.kind for each in held]), resized)
        held = []
