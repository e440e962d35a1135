"""Optimizer and learning rate."""

from __future__ import annotations

import math

import torch
from torch import nn

from config.schema import OptimizerSettings, RunSettings


class Schedule:
    """Linear warm-up, then a cosine."""

    def __init__(self, optimizer: torch.optim.Optimizer, settings: OptimizerSettings, total: int) -> None:
        self.optimizer = optimizer
        self.settings = settings
        self.total = max(total, settings.warmup + 1)
        self.step_number = 0

    def rate(self, step: int) -> float:
        if step < self.settings.warmup:
            return self.settings.rate * (step + 1) / self.settings.warmup
        done = (step - self.settings.warmup) / (self.total - self.settings.warmup)
        return self.settings.rate * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * min(1.0, done))))

    def step(self) -> None:
        rate = self.rate(self.step_number)
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group.get("scale", 1.0)
        self.step_number += 1


def build_optimizer(
    model: nn.Module, settings: OptimizerSettings, run: RunSettings
) -> tuple[torch.optim.Optimizer, Schedule]:
    decayed, plain = [], []
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        if settings.skip_norms and (parameter.dim() < 2 or "norm" in name):
            plain.append(parameter)
        else:
            decayed.append(parameter)
    groups = [
        {"params": decayed, "weight_decay": settings.weight_decay},
        {"params": plain, "weight_decay": 0.0, "scale": 0.5},
    ]
    groups = [group for group in groups if group["params"]]
    if settings.kind == "sgd":
        optimizer: torch.optim.Optimizer = torch.optim.SGD(groups, lr=settings.rate, momentum=0.9)
    else:
        optimizer = torch.optim.AdamW(groups, lr=settings.rate)
    return optimizer, Schedule(optimizer, settings, run.epochs * run.steps)
