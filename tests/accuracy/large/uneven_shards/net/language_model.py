"""The model, its loss, and how it writes."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from corpus.vocabulary import END, UNKNOWN
from net.blocks import Block
from settings.schema import NetSettings


class LanguageModel(nn.Module):
    def __init__(self, characters: int, settings: NetSettings) -> None:
        super().__init__()
        self.embedding = nn.Embedding(characters, settings.width)
        self.blocks = nn.ModuleList(
            Block(settings.width, settings.kernel, settings.dropout) for _ in range(settings.layers)
        )
        self.norm = nn.LayerNorm(settings.width)
        self.head = nn.Linear(settings.width, characters, bias=not settings.tie)
        if settings.tie:
            self.head.weight = self.embedding.weight
        self.apply(self._initialize)

    @staticmethod
    def _initialize(module: nn.Module) -> None:
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=0.05)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        x = self.embedding(inputs)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def loss_of(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Mean cross entropy; characters that are not known teach nothing."""
    return functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=UNKNOWN)


@torch.no_grad()
def write(model: nn.Module, start: list[int], most: int, generator: torch.Generator) -> list[int]:
    """Continue ``start`` until the end mark or ``most`` characters."""
    numbers = list(start)
    while len(numbers) < most:
        logits = model(torch.tensor([numbers[-32:]]))[0, -1]
        following = int(torch.multinomial(logits.softmax(-1), 1, generator=generator))
        if following == END:
            break
        numbers.append(following)
    return numbers
