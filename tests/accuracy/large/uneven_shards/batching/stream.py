"""From the shard of an epoch to its batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from batching.masking import Masker
from batching.packing import Packer, WindowShuffle
from batching.plan import EpochPlan
from corpus.normalizing import Normalizer
from corpus.screening import Screen
from corpus.shards import Catalogue, Shard
from corpus.vocabulary import Vocabulary
from settings.schema import Settings


@dataclass(frozen=True)
class Batch:
    inputs: torch.Tensor
    targets: torch.Tensor
    kind: str

    def __len__(self) -> int:
        return len(self.inputs)


class Stream:
    """One rank's text."""

    def __init__(self, settings: Settings, catalogue: Catalogue, rank: int, world_size: int) -> None:
        batching = settings.batching
        self.settings = settings
        self.catalogue = catalogue
        self.rank = rank
        self.world_size = world_size
        self.vocabulary = Vocabulary()
        self.screen = Screen(settings.corpus, Normalizer())
        self.packer = Packer(batching.block, batching.overlap)
        self.shuffle = WindowShuffle(batching.shuffle_window, settings.world.seed + rank)
        self.masker = Masker(0.1, settings.world.seed + rank)

    def shard(self, epoch: int) -> Shard:
        return self.catalogue.of_epoch(self.rank, self.world_size, epoch)

    def _encoded(self, shard: Shard, *, held_out: bool) -> Iterator[list[int]]:
        every = self.settings.corpus.held_out_every
        self.screen.begin()
        for number, document in enumerate(self.screen(shard.read())):
            if (number % every == 0) is held_out:
                yield self.vocabulary.encode(document.text)

    def _blocks(self, epoch: int) -> Iterator[list[int]]:
        packed = self.packer(self._encoded(self.shard(epoch), held_out=False))
        return self.shuffle(packed, epoch)

    def count(self, epoch: int) -> int:
        """Whole batches that this rank's shard yields."""
        return sum(1 for _ in self._blocks(epoch)) // self.settings.batching.batch

    def batches(self, plan: EpochPlan) -> Iterator[Batch]:
        """At most as many as the plan has steps; a last one that is not full is left out."""
        rows: list[list[int]] = []
        produced = 0
        kind = self.shard(plan.epoch).kind
        for block in self._blocks(plan.epoch):
            rows.append(block)
            if len(rows) < self.settings.batching.batch:
                continue
            yield self._collate(rows, kind)
            rows, produced = [], produced + 1
            if produced >= plan.steps:
                return

    def held_out(self, epoch: int, most: int) -> Iterator[Batch]:
        shard = self.shard(epoch)
        packer = Packer(self.settings.batching.block, 0)
        for number, block in enumerate(packer(self._encoded(shard, held_out=True))):
            if number >= most:
                break
            yield self._collate([block], shard.kind, mask=False)

    def _collate(self, rows: list[list[int]], kind: str, *, mask: bool = True) -> Batch:
        numbers = torch.tensor(rows)
        inputs = numbers[:, :-1]
        return Batch(self.masker(inputs) if mask else inputs, numbers[:, 1:], kind)
