"""How sure the scores may be: a temperature, searched on this rank's texts."""

from __future__ import annotations

import torch
from torch.nn.functional import cross_entropy

GRID = (0.5, 0.75, 1.0, 1.5, 2.0, 3.0)


def calibrated(scores: torch.Tensor, tags: torch.Tensor) -> float:
    """The temperature with the smallest loss; refined once where the best is inside of the grid."""
    if len(tags) == 0:
        return 1.0
    best, best_loss = 1.0, float("inf")
    for temperature in GRID:
        loss = float(cross_entropy(scores / temperature, tags))
        if loss < best_loss:
            best, best_loss = temperature, loss
    place = GRID.index(best)
    if 0 < place < len(GRID) - 1:
        between = [(GRID[place - 1] + best) / 2, (best + GRID[place + 1]) / 2]
        better = [value for value in between if float(cross_entropy(scores / value, tags)) < best_loss]
        if better:
            best = better[0]
    return best
