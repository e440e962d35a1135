from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

from mesh.groups import Mesh
from plan.config import Config
from stages.layers import part_of_model


class Stage:
    """This rank's part of the model."""

    def __init__(self, config: Config, mesh: Mesh) -> None:
        torch.manual_seed(config.seed + mesh.here.stage)
        self.mesh = mesh
        self.width = config.width
        self.module: nn.Module = part_of_model(mesh.here.stage, config.stages, config.width, config.vocabulary)
        self.parameters = [p for p in self.module.parameters() if p.requires_grad]

    def compute(self, given: torch.Tensor) -> torch.Tensor:
        return self.module(given)

    def loss(self, scores: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(scores.flatten(0, 1), targets.flatten())

    def average_gradients(self) -> float:
        """Over the sisters, in one message; returns the norm."""
        parts = []
        for parameter in self.parameters:
            gradient = parameter.grad if parameter.grad is not None else torch.zeros_like(parameter)
            parts.append(gradient.reshape(-1))
        flat = torch.cat(parts)
        dist.all_reduce(flat, group=self.mesh.sisters)
        flat /= self.mesh.here.replicas
        start = 0
        for parameter in self.parameters:
            parameter.grad = flat[start : start + parameter.numel()].view_as(parameter).clone()
            start += parameter.numel()
        return float(flat.norm())
