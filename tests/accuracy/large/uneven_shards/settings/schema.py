"""What can be set, with defaults and limits."""

from __future__ import annotations

from dataclasses import dataclass, field


class SettingsError(ValueError):
    """A setting is unknown or out of its range."""


def _within(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise SettingsError(f"{name} must lie between {low} and {high}, not {value}")


@dataclass(frozen=True)
class WorldSettings:
    backend: str = "gloo"
    threads: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        if self.backend not in ("gloo", "nccl", "mpi"):
            raise SettingsError(f"no backend is called {self.backend}")
        _within("threads", self.threads, 1, 256)


@dataclass(frozen=True)
class CorpusSettings:
    manifest: str = "corpus/manifest.json"
    shortest: int = 16
    longest: int = 512
    noise_limit: float = 0.3
    held_out_every: int = 10

    def __post_init__(self) -> None:
        _within("noise_limit", self.noise_limit, 0.0, 1.0)
        if self.shortest >= self.longest:
            raise SettingsError("shortest must be below longest")
        if self.held_out_every < 2:
            raise SettingsError("held_out_every below 2 would hold out everything")


@dataclass(frozen=True)
class BatchingSettings:
    block: int = 32
    batch: int = 4
    promised_share: float = 0.8
    overlap: int = 0
    shuffle_window: int = 1

    def __post_init__(self) -> None:
        _within("promised_share", self.promised_share, 0.05, 1.0)
        if self.overlap >= self.block:
            raise SettingsError("blocks cannot overlap by their whole length")


@dataclass(frozen=True)
class NetSettings:
    width: int = 32
    layers: int = 2
    kernel: int = 4
    dropout: float = 0.0
    tie: bool = True

    def __post_init__(self) -> None:
        _within("dropout", self.dropout, 0.0, 0.9)


@dataclass(frozen=True)
class TrainingSettings:
    epochs: int = 1
    peak_rate: float = 1e-3
    floor_rate: float = 1e-4
    warmup_steps: int = 10
    clip: float = 1.0
    weight_decay: float = 0.0
    spike_factor: float = 2.0

    def __post_init__(self) -> None:
        if self.floor_rate > self.peak_rate:
            raise SettingsError("floor_rate lies above peak_rate")
        _within("spike_factor", self.spike_factor, 1.0, 100.0)


@dataclass(frozen=True)
class KeepingSettings:
    folder: str = "runs/default"
    every_epochs: int = 1
    keep: int = 1


@dataclass(frozen=True)
class ReportingSettings:
    every: int = 10
    slow_factor: float = 3.0


@dataclass(frozen=True)
class Settings:
    world: WorldSettings = field(default_factory=WorldSettings)
    corpus: CorpusSettings = field(default_factory=CorpusSettings)
    batching: BatchingSettings = field(default_factory=BatchingSettings)
    net: NetSettings = field(default_factory=NetSettings)
    training: TrainingSettings = field(default_factory=TrainingSettings)
    keeping: KeepingSettings = field(default_factory=KeepingSettings)
    reporting: ReportingSettings = field(default_factory=ReportingSettings)
    agree_on_steps: bool = False
