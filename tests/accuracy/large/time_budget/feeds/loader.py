"""Batches of a rank, out of its shards one after the other."""

import random
from collections import Counter

import torch

from feeds.noise import disturb
from feeds.storage import Storage


class Loader:
    def __init__(self, shards, data, clock, me):
        self.shards = shards
        self.data = data
        self.clock = clock
        self.draw = random.Random(me.rank * 77 + 5)
        self.storage = Storage(data["tiers"], data["side"], data["kinds"], data["hold"])
        self.seen = Counter()
        self.carried = []
        self.rounds = 0
        self.lopsided = 0

    def items(self):
        """Endless single glyphs."""
        while True:
            for entry in self.shards:
                glyphs = list(self.storage.read(entry))
                if self.rounds or entry["turn"] > 0:
                    self.draw.shuffle(glyphs)
                yield from glyphs
            self.rounds += 1

    def __iter__(self):
        items = self.items()
        while True:
            with self.clock.part("data"):
                batch = self.batch(items)
            yield batch

    def batch(self, items):
        size = self.data["batch"]
        chosen, self.carried = self.carried[:size], self.carried[size:]
        kinds = Counter(kind for _, kind in chosen)
        tries = 0
        while len(chosen) < size:
            picture, kind = next(items)
            tries += 1
            # Too many of one kind: keep it for the next batch.
            if kinds[kind] >= size // 2 and tries < 2 * size and len(self.carried) < size:
                self.carried.append((picture, kind))
                continue
            kinds[kind] += 1
            chosen.append((picture, kind))
        if len(kinds) < min(3, self.data["kinds"]):
            self.lopsided += 1
        self.seen.update(kinds)
        pictures = torch.tensor([picture for picture, _ in chosen])
        clean, noisy = disturb(pictures, self.data, self.draw)
        return {"clean": clean, "noisy": noisy, "kind": torch.tensor([kind for _, kind in chosen])}

    def rarest(self):
        """The kind that this rank has seen least, None while there is nothing to say."""
        if sum(self.seen.values()) < 4 * self.data["kinds"]:
            return None
        return min(range(self.data["kinds"]), key=lambda kind: self.seen[kind])


def held_out(data, rank, batches):
    """Batches for an evaluation, others for each rank and the same each time."""
    storage = Storage({"hot": 0.0}, data["side"], data["kinds"], 1)
    draw = random.Random(rank)
    generator = torch.Generator().manual_seed(rank)
    for number in range(batches):
        entry = {"name": f"held-{rank}-{number}", "tier": "hot", "size": 2 * data["batch"], "swapped": False}
        glyphs = storage.read(entry)
        if draw.random() < 0.5:
            glyphs = glyphs[::-1]
        clean = torch.tensor([picture for picture, _ in glyphs])
        noisy = clean + data["noise"] * torch.randn(clean.shape, generator=generator)
        yield {"clean": clean, "noisy": noisy, "kind": torch.tensor([kind for _, kind in glyphs])}
