import torch
import torch.distributed as dist

from parallel.comm import world_size


class Confusion:
    """Rows are true classes, columns guesses."""

    def __init__(self, classes):
        self.classes = classes
        self.table = torch.zeros(classes, classes, dtype=torch.int64)

    def update(self, labels, guesses):
        for label, guess in zip(labels.tolist(), guesses.tolist(), strict=True):
            self.table[label, guess] += 1

    def of_all_ranks(self):
        if world_size() == 1:
            return [self.table]
        tables = [torch.zeros_like(self.table) for _ in range(world_size())]
        dist.all_gather(tables, self.table)
        return tables


def per_class(table):
    """(precision, recall) of each class; 0 where a class was never guessed or never there."""
    found = []
    for label in range(len(table)):
        hit = int(table[label, label])
        guessed, there = int(table[:, label].sum()), int(table[label].sum())
        found.append((hit / guessed if guessed else 0.0, hit / there if there else 0.0))
    return found


def most_confused(table):
    off = table.clone()
    off.fill_diagonal_(0)
    if int(off.max()) == 0:
        return None
    place = int(off.argmax())
    return place // len(table), place % len(table)
