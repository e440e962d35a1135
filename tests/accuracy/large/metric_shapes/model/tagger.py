"""The whole tagger."""

from __future__ import annotations

import torch
from torch import nn

from config.schema import ModelSettings
from data.corpus import PAD
from model.encoder import Encoder
from model.heads import TagHead


class Tagger(nn.Module):
    def __init__(self, encoder: Encoder, head: TagHead) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = head

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Scores [texts, tags]."""
        present = tokens != PAD
        return self.head(self.encoder(tokens, present), present)


def build_model(settings: ModelSettings, words: int, tags: int) -> Tagger:
    encoder = Encoder(words, settings)
    head = TagHead(settings, tags)
    model = Tagger(encoder, head)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            nn.init.zeros_(parameter)
        elif parameter.dim() > 1:
            nn.init.xavier_uniform_(parameter)
    if settings.tie_head:
        head.share(encoder)
    return model
