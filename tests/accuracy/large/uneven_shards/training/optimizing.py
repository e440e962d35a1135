"""The optimizer and what is done to gradients before it moves."""

from __future__ import annotations

import torch
from torch import nn

from settings.schema import TrainingSettings


def parameter_groups(model: nn.Module, decay: float) -> list[dict[str, object]]:
    """Matrices decay; norms and biases do not."""
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    matrices = [p for _, p in named if p.ndim >= 2]
    others = [p for _, p in named if p.ndim < 2]
    return [{"params": matrices, "weight_decay": decay}, {"params": others, "weight_decay": 0.0}]


class Optimizing:
    def __init__(self, model: nn.Module, settings: TrainingSettings) -> None:
        self.settings = settings
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(parameter_groups(model, settings.weight_decay), lr=settings.peak_rate)
        self.clipped = 0

    def step(self, rate: float) -> float:
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        norm = float(nn.utils.clip_grad_norm_(self.parameters, self.settings.clip))
        if norm > self.settings.clip:
            self.clipped += 1
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return norm
