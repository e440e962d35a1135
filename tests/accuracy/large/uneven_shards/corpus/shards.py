"""Which shards there are, and which of them a rank reads in which epoch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from corpus.documents import Document, write_documents

_TYPICAL_LENGTH = {"books": 66, "forum": 58, "code": 88, "crawl": 92}


@dataclass(frozen=True)
class Shard:
    name: str
    kind: str
    documents: int
    seed: int
    copies: float = 0.0

    @property
    def promised_characters(self) -> int:
        return self.documents * _TYPICAL_LENGTH.get(self.kind, 50)

    def read(self) -> Iterator[Document]:
        yield from write_documents(self.name, self.kind, self.documents, self.seed, self.copies)


class Catalogue:
    """All shards of the manifest, dealt out to the ranks in turn."""

    def __init__(self, shards: list[Shard]) -> None:
        if not shards:
            raise ValueError("the manifest names no shards")
        self.shards = shards
        names = [shard.name for shard in shards]
        doubled = {name for name in names if names.count(name) > 1}
        if doubled:
            raise ValueError(f"named twice: {', '.join(sorted(doubled))}")

    @classmethod
    def from_manifest(cls, path: Path) -> Catalogue:
        table = json.loads(path.read_text(encoding="utf-8"))
        return cls([Shard(**entry) for entry in table["shards"]])

    def of_rank(self, rank: int, world_size: int) -> list[Shard]:
        mine = [shard for number, shard in enumerate(self.shards) if number % world_size == rank]
        return mine if mine else self.shards[:1]

    def of_epoch(self, rank: int, world_size: int, epoch: int) -> Shard:
        """One shard an epoch, in turn."""
        mine = self.of_rank(rank, world_size)
        return mine[epoch % len(mine)]

    def least_promised(self, world_size: int, epoch: int) -> int:
        """Characters that every rank is promised in this epoch, by the manifest."""
        return min(self.of_epoch(rank, world_size, epoch).promised_characters for rank in range(world_size))
