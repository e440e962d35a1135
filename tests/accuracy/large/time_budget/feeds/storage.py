"""Reading a shard from where it lies. The shards are made here; how long it takes is as in the cluster."""

import random
import time
from collections import OrderedDict

from feeds.glyphs import draw


class Storage:
    def __init__(self, tiers, side, kinds, hold):
        self.tiers = tiers
        self.side = side
        self.kinds = kinds
        self.hold = hold
        self.held = OrderedDict()
        self.reads = {"hot": 0, "near": 0, "cold": 0}

    def read(self, entry):
        name = entry["name"]
        if name in self.held:
            self.held.move_to_end(name)
            return self.held[name]
        delay = self.tiers.get(entry["tier"])
        if delay is None:
            raise LookupError(f"{name} is in {entry['tier']}, which nobody knows")
        if delay:
            time.sleep(delay)
        self.reads[entry["tier"]] += 1
        chance = random.Random(name)
        glyphs = []
        while len(glyphs) < entry["size"]:
            kind = chance.randrange(self.kinds)
            picture = draw(kind, self.side, chance)
            if sum(map(sum, picture)) < 2:
                continue
            if entry["swapped"]:
                picture = [list(column) for column in zip(*picture, strict=True)]
            glyphs.append((picture, kind))
        self.held[name] = glyphs
        while len(self.held) > self.hold:
            self.held.popitem(last=False)
        return glyphs
