"""Gradient descent with momentum, decay and clipping, written out since it is short."""

from __future__ import annotations

import torch


class Descent:
    """Steps the parameters of a module."""

    def __init__(self, module, settings):
        self.settings = settings
        self.parameters = [each for each in module.parameters() if each.requires_grad]
        self.speed = [torch.zeros_like(each) for each in self.parameters]
        self.updates = 0
        self.clipped = 0

    def forget(self):
        for parameter in self.parameters:
            parameter.grad = None

    def norm(self):
        squares = [float(each.grad.pow(2).sum()) for each in self.parameters if each.grad is not None]
        return sum(squares) ** 0.5

    @torch.no_grad()
    def step(self, rate):
        norm = self.norm()
        factor = 1.0
        if self.settings.clip > 0 and norm > self.settings.clip:
            factor = self.settings.clip / norm
            self.clipped += 1
        for parameter, speed in zip(self.parameters, self.speed, strict=True):
            if parameter.grad is None:
                continue
            change = parameter.grad * factor
            if self.settings.decay and parameter.dim() > 1:
                change = change + self.settings.decay * parameter
            speed.mul_(self.settings.momentum).add_(change)
            parameter.sub_(speed, alpha=rate)
        self.updates += 1
        return norm

    def state(self):
        return {"speed": [each.clone() for each in self.speed], "updates": self.updates}
