"""Counts that add up over ranks."""

import torch
from torch.nn import functional

from comm import sums
from learner import weights as tensors


def pieces(table, size=16):
    for start in range(0, len(table.values), size):
        yield table.values[start : start + size], table.labels[start : start + size]


@torch.no_grad()
def check(weights, table, place):
    """(mean loss, share of right answers) over all rows of all ranks."""
    loss, right, count = 0.0, 0, 0
    for rows, labels in pieces(table):
        scores = tensors.logits(weights, rows)
        loss += float(functional.cross_entropy(scores, labels, reduction="sum"))
        right += int((scores.argmax(1) == labels).sum())
        count += len(labels)
    loss, right, count = sums.total([loss, right, count], place.size)
    return (loss / count, right / count) if count else (float("nan"), 0.0)


@torch.no_grad()
def confusion(weights, table, place):
    """A matrix [true][told] over all ranks."""
    cells = [0] * (table.kinds * table.kinds)
    for rows, labels in pieces(table):
        told = tensors.logits(weights, rows).argmax(1)
        for true, other in zip(labels.tolist(), told.tolist(), strict=True):
            cells[true * table.kinds + other] += 1
    cells = sums.total(cells, place.size)
    return [cells[start : start + table.kinds] for start in range(0, len(cells), table.kinds)]
