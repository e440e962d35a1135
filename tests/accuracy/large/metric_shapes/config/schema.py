"""The settings of a run: plain data classes, each of which checks itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

LANGUAGES = ("prose", "logs", "chat", "code")


class SettingsError(ValueError):
    """A setting has a value that makes no sense."""


@dataclass
class DataSettings:
    words: int = 160
    tags: int = 5
    texts: int = 96
    valid_texts: int = 40
    tokens_per_batch: int = 96
    longest_text: int = 24
    cache_entries: int = 64
    drop_words: float = 0.1
    swap_words: float = 0.15
    rare_share: float = 0.08
    domains: tuple[str, ...] = LANGUAGES

    def check(self) -> None:
        if self.words < 8 or self.tags < 2:
            raise SettingsError("at least 8 words and 2 tags are needed")
        if self.longest_text > self.tokens_per_batch:
            raise SettingsError(f"a text of {self.longest_text} tokens fits no batch of {self.tokens_per_batch}")
        for name in ("drop_words", "swap_words", "rare_share"):
            if not 0 <= getattr(self, name) < 1:
                raise SettingsError(f"{name} is a share, from 0 to 1")
        unknown = [domain for domain in self.domains if domain not in LANGUAGES]
        if unknown:
            raise SettingsError(f"unknown domains: {', '.join(unknown)}")


@dataclass
class ModelSettings:
    width: int = 16
    layers: int = 2
    dropout: float = 0.1
    pooling: str = "attention"
    residual: bool = True
    tie_head: bool = False

    def check(self) -> None:
        if self.pooling not in ("mean", "max", "attention"):
            raise SettingsError(f"pooling is mean, max or attention, not {self.pooling!r}")
        if self.tie_head and self.layers == 0:
            raise SettingsError("a tied head needs at least one layer")


@dataclass
class OptimizerSettings:
    kind: str = "adamw"
    rate: float = 0.01
    weight_decay: float = 0.01
    warmup: int = 4
    clip: float | None = 1.0
    skip_norms: bool = True

    def check(self) -> None:
        if self.kind not in ("adamw", "sgd"):
            raise SettingsError(f"unknown optimizer {self.kind!r}")
        if self.rate <= 0 or (self.clip is not None and self.clip <= 0):
            raise SettingsError("the learning rate and the norm to clip to are positive")


@dataclass
class MetricSettings:
    names: tuple[str, ...] = ("loss", "accuracy", "f1", "confusion", "length")
    double_after: int = 400
    """Losses are summed in double precision where more examples than that have been seen."""
    alignment: int = 128
    agree: bool = False

    def check(self) -> None:
        if self.alignment < 1 or self.alignment & (self.alignment - 1):
            raise SettingsError("the alignment is a power of two")
        if "f1" not in self.names:
            raise SettingsError("the best checkpoint is chosen by f1, so it has to be among the metrics")


@dataclass
class RunSettings:
    epochs: int = 5
    steps: int = 10
    seed: int = 17
    folder: str = ""
    keep_checkpoints: int = 2
    log_every: int = 4
    patience: int = 3
    min_delta: float = 0.001
    verbose: bool = False
    timeout: float = 1800.0

    def check(self) -> None:
        if self.epochs < 0 or self.steps < 1:
            raise SettingsError("a run has epochs and steps")
        if self.patience and self.min_delta < 0:
            raise SettingsError("min_delta is not negative")


@dataclass
class Settings:
    data: DataSettings = field(default_factory=DataSettings)
    model: ModelSettings = field(default_factory=ModelSettings)
    optimizer: OptimizerSettings = field(default_factory=OptimizerSettings)
    metrics: MetricSettings = field(default_factory=MetricSettings)
    run: RunSettings = field(default_factory=RunSettings)

    def check(self) -> Settings:
        for section in dataclasses.fields(self):
            getattr(self, section.name).check()
        return self

    def flat(self) -> Iterator[tuple[str, Any]]:
        """Names with dots, and values."""
        for section in dataclasses.fields(self):
            values = getattr(self, section.name)
            for each in dataclasses.fields(values):
                yield f"{section.name}.{each.name}", getattr(values, each.name)
