"""Per-rank noise on the input: some characters are hidden from the model."""

from __future__ import annotations

import torch

from corpus.vocabulary import UNKNOWN


class Masker:
    def __init__(self, share: float, seed: int) -> None:
        self.share = share
        self.generator = torch.Generator().manual_seed(seed)

    def __call__(self, inputs: torch.Tensor) -> torch.Tensor:
        if self.share <= 0.0 or float(torch.rand((), generator=self.generator)) < 0.5:
            return inputs
        hidden = torch.rand(inputs.shape, generator=self.generator) < self.share
        return inputs.masked_fill(hidden, UNKNOWN) if bool(hidden.any()) else inputs
