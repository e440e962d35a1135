"""The metrics of one validation."""

from __future__ import annotations

import logging
from collections.abc import Callable

import torch

from config.schema import MetricSettings, SettingsError
from distributed.agree import largest
from metrics.states import Accuracy, Confusion, LengthBuckets, MacroF1, MeanLoss, Metric

LOG = logging.getLogger("tagger.metrics")


def build_metrics(settings: MetricSettings, tags: int, examples: int) -> list[Metric]:
    """``examples``: how many this rank has seen until now; long sums need more digits."""
    seen = largest(examples) if settings.agree else examples
    dtype = torch.float64 if seen > settings.double_after else torch.float32
    makers: dict[str, Callable[[], Metric]] = {
        "loss": lambda: MeanLoss(dtype),
        "accuracy": Accuracy,
        "f1": lambda: MacroF1(tags),
        "confusion": lambda: Confusion(tags),
        "length": LengthBuckets,
    }
    unknown = [name for name in settings.names if name not in makers]
    if unknown:
        raise SettingsError(f"unknown metrics: {', '.join(unknown)}")
    LOG.debug("%d examples, sums in %s", seen, dtype)
    return [makers[name]() for name in settings.names]
