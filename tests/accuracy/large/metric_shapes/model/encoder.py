"""Embedding and a few mixing layers."""

from __future__ import annotations

import torch
from torch import nn

from config.schema import ModelSettings
from data.corpus import PAD


class MixingLayer(nn.Module):
    """Each token sees the mean of its text, then a small network."""

    def __init__(self, width: int, dropout: float, *, residual: bool) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.inner = nn.Linear(2 * width, 2 * width)
        self.outer = nn.Linear(2 * width, width)
        self.dropout = nn.Dropout(dropout) if dropout else nn.Identity()
        self.residual = residual

    def forward(self, states: torch.Tensor, present: torch.Tensor) -> torch.Tensor:
        normed = self.norm(states)
        weights = present.unsqueeze(-1).float()
        mean = (normed * weights).sum(1, keepdim=True) / weights.sum(1, keepdim=True).clamp(min=1)
        mixed = torch.cat((normed, mean.expand_as(normed)), dim=-1)
        change = self.outer(self.dropout(torch.relu(self.inner(mixed))))
        return states + change if self.residual else change


class Encoder(nn.Module):
    def __init__(self, words: int, settings: ModelSettings) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, settings.width, padding_idx=PAD)
        self.layers = nn.ModuleList(
            MixingLayer(settings.width, settings.dropout, residual=settings.residual or number == 0)
            for number in range(settings.layers)
        )

    def forward(self, tokens: torch.Tensor, present: torch.Tensor) -> torch.Tensor:
        states = self.embedding(tokens)
        for layer in self.layers:
            states = layer(states, present)
        return states
