import math
import random

from utils.registry import Registry

SAMPLERS = Registry("sampler")


class EvenSteps:
    """As many batches on each rank, whatever the size of its site: smaller sites start over."""

    def __init__(self, site, batch, steps, seed):
        self.site = site
        self.batch = batch
        self.steps = steps
        self.seed = seed
        self.epoch = 0
        self.repeated = 0

    def __len__(self):
        return self.steps

    def order(self, rng):
        raise NotImplementedError

    def __iter__(self):
        rng = random.Random(f"{self.seed}-{self.epoch}")
        pool = []
        for _ in range(self.steps):
            while len(pool) < self.batch:
                if pool:
                    self.repeated += 1
                pool += self.order(rng)
            yield pool[: self.batch]
            del pool[: self.batch]


@SAMPLERS.register("shuffled")
class Shuffled(EvenSteps):
    def order(self, rng):
        order = list(range(len(self.site)))
        rng.shuffle(order)
        return order


@SAMPLERS.register("balanced")
class Balanced(EvenSteps):
    """Classes in turn; rare ones come more often."""

    def order(self, rng):
        by_class = [members for label in sorted(set(self.site.labels)) if (members := self.site.of_class(label))]
        for members in by_class:
            rng.shuffle(members)
        longest = max(len(members) for members in by_class)
        rounds = math.ceil(longest / 1.5)
        found = []
        for turn in range(rounds):
            for members in by_class:
                found.append(members[turn % len(members)])
        return found


class InOrder:
    """All of it once, the last batch as small as it is. For validation, where no rank waits for another."""

    def __init__(self, site, batch):
        self.count = len(site)
        self.batch = batch

    def __len__(self):
        return math.ceil(self.count / self.batch)

    def __iter__(self):
        for start in range(0, self.count, self.batch):
            yield list(range(start, min(start + self.batch, self.count)))
