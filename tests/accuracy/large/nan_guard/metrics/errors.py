"""Errors of forecasts, as sums that can be added over ranks."""

from __future__ import annotations

from dataclasses import dataclass

import torch

_NAMES = ("count", "absolute", "square", "baseline", "calm", "calm_hits")


@dataclass(frozen=True)
class Result:
    error: float
    deviation: float
    skill: float
    calm: float
    """Share of calm hours that were forecast as calm."""


class ErrorSums:
    """Sums over forecasts of this rank."""

    def __init__(self, calm_below=-0.5):
        self.calm_below = calm_below
        self.sums = torch.zeros(len(_NAMES), dtype=torch.float64)
        self.skipped = 0

    def add(self, forecast, target, baseline):
        """Three tensors (batch, horizon)."""
        for guess, truth, simple in zip(forecast, target, baseline, strict=True):
            if not bool(torch.isfinite(truth).all()):
                self.skipped += 1
                continue
            error = guess - truth
            calm = truth < self.calm_below
            hits = calm & (guess < self.calm_below)
            row = [truth.numel(), error.abs().sum(), (error**2).sum(), (simple - truth).abs().sum()]
            self.sums += torch.tensor([*row, calm.sum(), hits.sum()], dtype=torch.float64)

    def result(self, total):
        """The result of sums over all ranks."""
        values = dict(zip(_NAMES, total.tolist(), strict=True))
        count = values["count"]
        if not count:
            return Result(float("nan"), float("nan"), 0.0, 0.0)
        error = values["absolute"] / count
        baseline = values["baseline"] / count
        return Result(
            error=error,
            deviation=(values["square"] / count) ** 0.5,
            skill=1.0 - error / baseline if baseline > 0 else 0.0,
            calm=values["calm_hits"] / values["calm"] if values["calm"] else 0.0,
        )
