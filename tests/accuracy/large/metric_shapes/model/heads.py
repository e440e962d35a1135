"""From the states of the tokens to the scores of the tags."""

from __future__ import annotations

import torch
from torch import nn

from config.schema import ModelSettings
from model.encoder import Encoder


class TagHead(nn.Module):
    def __init__(self, settings: ModelSettings, tags: int) -> None:
        super().__init__()
        self.pooling = settings.pooling
        self.attend = nn.Linear(settings.width, 1) if settings.pooling == "attention" else None
        self.score = nn.Linear(settings.width, tags)

    def pool(self, states: torch.Tensor, present: torch.Tensor) -> torch.Tensor:
        if self.attend is not None:
            weights = self.attend(states).squeeze(-1).masked_fill(~present, -1e4).softmax(dim=-1)
            return (states * weights.unsqueeze(-1)).sum(dim=1)
        if self.pooling == "max":
            return states.masked_fill(~present.unsqueeze(-1), -1e4).amax(dim=1)
        weights = present.unsqueeze(-1).float()
        return (states * weights).sum(1) / weights.sum(1).clamp(min=1)

    def forward(self, states: torch.Tensor, present: torch.Tensor) -> torch.Tensor:
        return self.score(self.pool(states, present))

    def share(self, encoder: Encoder) -> None:
        """Begin with the embedding's first rows."""
        with torch.no_grad():
            rows = encoder.embedding.weight[: self.score.out_features]
            if rows.shape == self.score.weight.shape:
                self.score.weight.copy_(rows)
