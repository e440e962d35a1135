from __future__ import annotations

import torch

from feed.micro import Micro


class Tokens:
    """Sequences that follow a rule with exceptions; first and last stage draw the same ones."""

    def __init__(self, vocabulary: int, replica: int, seed: int) -> None:
        self.vocabulary = vocabulary
        self.replica = replica
        self.seed = seed
        self.exceptions = 0

    def draw(self, micro: Micro) -> tuple[torch.Tensor, torch.Tensor]:
        """(inputs, targets), each (samples, length)."""
        generator = torch.Generator().manual_seed(
            ((self.seed * 31 + self.replica) * 1009 + micro.step) * 101 + micro.index
        )
        start = torch.randint(self.vocabulary, (micro.samples, 1), generator=generator)
        stride = 1 + self.replica % 3
        row = (start + stride * torch.arange(micro.length + 1)) % self.vocabulary
        odd = torch.rand(row.shape, generator=generator) < 0.03 * (1 + self.replica)
        if bool(odd.any()):
            self.exceptions += int(odd.sum())
            row = torch.where(odd, torch.randint(self.vocabulary, row.shape, generator=generator), row)
        return row[:, :-1], row[:, 1:]
