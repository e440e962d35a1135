"""A small cache of encoded texts, least recently used first out."""

from __future__ import annotations

from collections import OrderedDict


class TokenCache:
    def __init__(self, entries: int) -> None:
        self.entries = entries
        self.kept: OrderedDict[str, tuple[int, ...]] = OrderedDict()
        self.hits = 0
        self.misses = 0

    def get(self, key: str) -> tuple[int, ...] | None:
        found = self.kept.get(key)
        if found is None:
            self.misses += 1
            return None
        self.hits += 1
        self.kept.move_to_end(key)
        return found

    def put(self, key: str, tokens: tuple[int, ...]) -> None:
        if not self.entries:
            return
        self.kept[key] = tokens
        while len(self.kept) > self.entries:
            self.kept.popitem(last=False)

    @property
    def rate(self) -> float:
        asked = self.hits + self.misses
        return self.hits / asked if asked else 0.0
