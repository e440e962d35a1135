"""Sections of the settings: plain dataclasses with checks of their own."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, is_dataclass


class SettingsError(ValueError):
    """A setting is unknown, or its value makes no sense."""


@dataclass
class DataSettings:
    stations: int = 13
    hours: int = 420
    context: int = 24
    horizon: int = 6
    stride: int = 5
    batch: int = 6
    hold_out: float = 0.2
    jitter: float = 0.03
    drop_channel: float = 0.1

    def check(self):
        if self.context < 2 or self.horizon < 1:
            raise SettingsError("a window needs two hours of context and one of forecast")
        if self.hours < 4 * (self.context + self.horizon):
            raise SettingsError(f"{self.hours} hours are too few for windows of {self.context} + {self.horizon}")
        if not 0.0 < self.hold_out < 0.5:
            raise SettingsError("hold_out is a share below one half")


@dataclass
class ModelSettings:
    width: int = 16
    layers: int = 2
    residual: bool = True
    dropout: float = 0.0
    activation: str = "gelu"

    def check(self):
        if self.activation not in ("gelu", "relu", "tanh"):
            raise SettingsError(f"no activation is called {self.activation!r}")
        if self.layers < 1:
            raise SettingsError("a network has at least one layer")


@dataclass
class OptimizerSettings:
    rate: float = 3e-3
    floor: float = 1e-4
    warm_up: int = 4
    decay: float = 1e-3
    momentum: float = 0.9
    clip: float = 5.0
    schedule: str = "cosine"
    bucket_bytes: int = 4096

    def check(self):
        if self.floor > self.rate:
            raise SettingsError("the rate cannot fall to more than it is")
        if self.schedule not in ("cosine", "linear", "constant"):
            raise SettingsError(f"no schedule is called {self.schedule!r}")


@dataclass
class GuardSettings:
    enabled: bool = True
    ceiling: float = 60.0
    tolerance: int = 4
    together: bool = False
    """Ask all ranks before an update is left out."""

    def check(self):
        if self.tolerance < 1:
            raise SettingsError("tolerance counts updates in a row; it is at least 1")


@dataclass
class ReportSettings:
    every: int = 5
    bar: bool = False
    lag_warning: float = 4.0

    def check(self):
        if self.every < 1:
            raise SettingsError("reports come every 1 or more steps")


@dataclass
class StoppingSettings:
    enabled: bool = True
    patience: int = 3
    least_gain: float = 1e-4

    def check(self):
        if self.patience < 0:
            raise SettingsError("patience cannot be negative")


@dataclass
class CheckpointSettings:
    enabled: bool = True
    folder: str = ""
    keep: int = 2

    def check(self):
        if self.enabled and self.keep < 1:
            raise SettingsError("to keep no checkpoint, set checkpoint.enabled=false")


@dataclass
class Settings:
    seed: int = 6
    epochs: int = 3
    verbose: bool = False
    data: DataSettings = field(default_factory=DataSettings)
    model: ModelSettings = field(default_factory=ModelSettings)
    optimizer: OptimizerSettings = field(default_factory=OptimizerSettings)
    guard: GuardSettings = field(default_factory=GuardSettings)
    report: ReportSettings = field(default_factory=ReportSettings)
    stopping: StoppingSettings = field(default_factory=StoppingSettings)
    checkpoint: CheckpointSettings = field(default_factory=CheckpointSettings)

    def check(self):
        for each in fields(self):
            section = getattr(self, each.name)
            if is_dataclass(section):
                section.check()
        if self.epochs < 1:
            raise SettingsError("a run has at least one epoch")
