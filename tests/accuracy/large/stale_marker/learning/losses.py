"""Losses of single windows."""

from __future__ import annotations

import torch

from settings.ini import ConfigurationError


def window_losses(kind: str, forecast: torch.Tensor, future: torch.Tensor) -> torch.Tensor:
    """[windows]"""
    difference = forecast - future
    if kind == "squared":
        return difference.pow(2).mean(dim=(1, 2))
    if kind == "absolute":
        return difference.abs().mean(dim=(1, 2))
    if kind == "huber":
        size = difference.abs()
        return torch.where(size < 1, 0.5 * size.pow(2), size - 0.5).mean(dim=(1, 2))
    raise ConfigurationError(f"[training] no loss {kind}")


def weighted_mean(losses: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    total = weights.sum()
    return (losses * weights).sum() / total if float(total) > 0 else losses.sum() * 0
