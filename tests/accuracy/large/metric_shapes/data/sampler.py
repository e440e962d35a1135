"""Orders of the texts: shuffled, with the rare tags drawn more often."""

from __future__ import annotations

import random
from collections.abc import Iterator

from data.corpus import Shard


class BalancedSampler:
    """Endless: begins a new pass over the shard when one is over."""

    def __init__(self, shard: Shard, seed: int) -> None:
        self.shard = shard
        self.chance = random.Random(seed)
        self.passes = 0
        counts = shard.counts
        usual = max(counts.values(), default=1)
        self.repeats = {tag: 2 if count * 2 < usual else 1 for tag, count in counts.items()}

    def one_pass(self) -> list[int]:
        order = [
            index
            for index, text in enumerate(self.shard.texts)
            for _ in range(self.repeats.get(text.tag, 1))
            if text.tokens
        ]
        self.chance.shuffle(order)
        return order

    def __iter__(self) -> Iterator[int]:
        while True:
            yield from self.one_pass()
            self.passes += 1
            if self.passes % 3 == 0:
                self.chance.seed(self.passes)
