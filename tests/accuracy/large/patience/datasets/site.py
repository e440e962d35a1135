import random
from collections import OrderedDict

from datasets.patterns import draw, labels, noise_like


class Site:
    """The images of one place. Scanners differ: some add an offset, and some staff mislabel."""

    def __init__(self, name, part, count, size, classes, seed, wrong=0.0):
        self.name = name
        self.part = part
        self.size = size
        rng = random.Random(f"{name}-{part}-{seed}")
        self.true_labels = labels(count, classes, rng)
        self.labels = []
        for label in self.true_labels:
            if wrong and rng.random() < wrong:
                label = (label + rng.randint(1, classes - 1)) % classes
            self.labels.append(label)
        self.offset = rng.uniform(-0.2, 0.2) if name[0] in "bdh" else 0.0
        self.seed = seed

    def __len__(self):
        return len(self.labels)

    def image(self, index):
        rng = random.Random(f"{self.name}-{self.part}-{index}")
        image = draw(self.true_labels[index], self.size, rng)
        if self.offset:
            image = image + self.offset
        return noise_like(image, 0.6, self.seed + index).unsqueeze(0)

    def of_class(self, label):
        return [index for index, other in enumerate(self.labels) if other == label]


class CachedImages:
    """Keeps as many images as the budget of this host allows."""

    def __init__(self, site, budget):
        self.site = site
        self.budget = budget
        self.hits = 0
        self.misses = 0
        self._images = OrderedDict()

    def __getitem__(self, index):
        if index in self._images:
            self.hits += 1
            self._images.move_to_end(index)
            return self._images[index]
        self.misses += 1
        image = self.site.image(index)
        if self.budget > 0:
            self._images[index] = image
        while len(self._images) > self.budget:
            self._images.popitem(last=False)
        return image

    @property
    def hit_rate(self):
        asked = self.hits + self.misses
        return self.hits / asked if asked else 0.0
