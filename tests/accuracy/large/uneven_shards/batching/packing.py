"""Documents of any length into blocks of one length."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator


class Packer:
    """Joins documents; a block starts ``overlap`` characters before the last one ended, so context is not lost."""

    def __init__(self, block: int, overlap: int) -> None:
        self.block = block
        self.overlap = overlap
        self.leftover = 0

    def __call__(self, encoded: Iterable[list[int]]) -> Iterator[list[int]]:
        pool: list[int] = []
        wanted = self.block + 1
        for numbers in encoded:
            pool.extend(numbers)
            while len(pool) >= wanted:
                yield pool[:wanted]
                del pool[: self.block - self.overlap]
        self.leftover = len(pool)


class WindowShuffle:
    """Shuffles within a window, so that nothing needs to be held whole."""

    def __init__(self, window: int, seed: int) -> None:
        self.window = window
        self.seed = seed

    def __call__(self, blocks: Iterable[list[int]], epoch: int) -> Iterator[list[int]]:
        if self.window <= 1:
            yield from blocks
            return
        rng = random.Random(self.seed * 1009 + epoch)
        held: list[list[int]] = []
        for block in blocks:
            if len(held) < self.window:
                held.append(block)
                continue
            place = rng.randrange(self.window)
            held[place], block = block, held[place]
            yield block
        rng.shuffle(held)
        yield from held
