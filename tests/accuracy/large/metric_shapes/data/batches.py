"""Batches with a budget of tokens: how many texts a batch has depends on how long they are."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch

from config.schema import DataSettings
from data.augment import augment
from data.corpus import PAD, Shard, Text
from data.sampler import BalancedSampler
from distributed.setup import Ranks

LOG = logging.getLogger("tagger.data")


@dataclass(frozen=True)
class Batch:
    tokens: torch.Tensor
    """[texts, longest], padded with ``PAD``."""
    tags: torch.Tensor
    lengths: torch.Tensor
    rare: torch.Tensor

    def __len__(self) -> int:
        return len(self.tags)

    @property
    def padding(self) -> float:
        return float((self.tokens == PAD).float().mean())


def collate(texts: list[Text]) -> Batch:
    longest = max(len(text.tokens) for text in texts)
    tokens = torch.full((len(texts), longest), PAD)
    for row, text in enumerate(texts):
        tokens[row, : len(text.tokens)] = torch.tensor(text.tokens)
    return Batch(
        tokens,
        torch.tensor([text.tag for text in texts]),
        torch.tensor([len(text.tokens) for text in texts]),
        torch.tensor([text.rare for text in texts]),
    )


class BatchStream:
    """Endless training batches; counts what it gave out."""

    def __init__(self, shard: Shard, settings: DataSettings, ranks: Ranks) -> None:
        self.settings = settings
        self.chance = random.Random(1000 + ranks.rank)
        self.sampler = BalancedSampler(shard, seed=ranks.rank)
        self.shard = shard
        self.order = iter(self.sampler)
        self.waiting: Text | None = None
        self.examples = 0
        self.wasteful = 0

    def next(self) -> Batch:
        chosen: list[Text] = [] if self.waiting is None else [self.waiting]
        self.waiting = None
        longest = max((len(text.tokens) for text in chosen), default=0)
        for index in self.order:
            text = self.noisy(self.shard.texts[index])
            longest = max(longest, len(text.tokens))
            if chosen and longest * (len(chosen) + 1) > self.settings.tokens_per_batch:
                self.waiting = text
                break
            chosen.append(text)
        batch = collate(chosen)
        if batch.padding > 0.3:
            self.wasteful += 1
        self.examples += len(batch)
        return batch

    def noisy(self, text: Text) -> Text:
        if text.rare:
            return text
        return Text(augment(text.tokens, self.settings, self.chance), text.tag, text.domain)


def valid_batches(shard: Shard, size: int) -> Iterator[Batch]:
    """The whole shard in batches of neighbors in length."""
    texts = sorted(shard.texts, key=lambda text: len(text.tokens))
    for start in range(0, len(texts), size):
        yield collate(texts[start : start + size])


def average_length(batches: Iterable[Batch]) -> float:
    lengths = [float(length) for batch in batches for length in batch.lengths if length > 0]
    return sum(lengths) / len(lengths) if lengths else 0.0
