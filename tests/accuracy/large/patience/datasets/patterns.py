import math
import random

import torch


def stripes(size, phase, vertical):
    line = torch.tensor([math.sin(2 * math.pi * (i + phase) / 4) for i in range(size)])
    return line.repeat(size, 1) if vertical else line.repeat(size, 1).t()


def disc(size, radius):
    center = (size - 1) / 2
    rows = [[1.0 if math.hypot(i - center, j - center) < radius else -0.5 for j in range(size)] for i in range(size)]
    return torch.tensor(rows)


def checker(size, cell):
    rows = [[1.0 if (i // cell + j // cell) % 2 else -1.0 for j in range(size)] for i in range(size)]
    return torch.tensor(rows)


def draw(label, size, rng):
    """One picture of a class."""
    if label == 0:
        return stripes(size, rng.uniform(0, 4), vertical=True)
    if label == 1:
        return stripes(size, rng.uniform(0, 4), vertical=False)
    if label == 2:
        return disc(size, rng.uniform(2.0, size / 2))
    if label == 3:
        return checker(size, rng.choice((1, 2)))
    raise ValueError(f"no pattern for class {label}")


def noise_like(image, amount, seed):
    generator = torch.Generator().manual_seed(seed)
    return image + amount * torch.randn(image.shape, generator=generator)


def labels(count, classes, rng):
    """As even as the count allows, in random order."""
    found = [number % classes for number in range(count)]
    random.Random(rng.random()).shuffle(found)
    return found
