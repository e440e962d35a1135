"""What the model writes, for a person to read."""

from __future__ import annotations

import torch
from torch import nn

from corpus.vocabulary import Vocabulary
from net.language_model import write


class Sampler:
    def __init__(self, vocabulary: Vocabulary, seed: int, most: int = 40) -> None:
        self.vocabulary = vocabulary
        self.most = most
        self.generator = torch.Generator().manual_seed(seed)

    def sample(self, model: nn.Module, prompt: str) -> str:
        was_training = model.training
        model.eval()
        numbers = write(model, self.vocabulary.encode(prompt)[:-1], self.most, self.generator)
        if was_training:
            model.train()
        text = self.vocabulary.decode(numbers).replace("\n", "⏎")
        return text if len(text) > len(prompt) else f"{text} (nothing more)"
