"""The settings as a tree of frozen dataclasses."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum


class Unit(Enum):
    """What an allowance is measured in."""

    BYTES = "bytes"
    RECORDS = "records"


class Curve(Enum):
    """How the learning rate falls."""

    FLAT = "flat"
    COSINE = "cosine"
    STEPS = "steps"


@dataclass(frozen=True, slots=True)
class StorageSettings:
    folder: str = "packs"
    records: int = 120
    rewrite: bool = True
    verify: bool = True
    window: int = 24
    """Records among which the reader shuffles."""


@dataclass(frozen=True, slots=True)
class QuotaSettings:
    unit: Unit = Unit.BYTES
    bytes: int = 24_000
    records: int = 5_000


@dataclass(frozen=True, slots=True)
class FeedSettings:
    batch: int = 8
    depth: int = 3
    side: int = 8
    flip: float = 0.5
    shade: float = 0.2
    cut: float = 0.25
    starved_after: float = 0.05


@dataclass(frozen=True, slots=True)
class VisionSettings:
    channels: tuple[int, ...] = (6, 8)
    kinds: int = 4
    pool: str = "mean"


@dataclass(frozen=True, slots=True)
class FitSettings:
    steps: int = 28
    rate: float = 0.02
    curve: Curve = Curve.COSINE
    drops: tuple[int, ...] = (14, 22)
    smooth: float = 0.05
    judge_every: int = 7
    log_every: int = 4
    clip: float = 3.0


@dataclass(frozen=True, slots=True)
class JudgeSettings:
    pictures: int = 37
    piece: int = 10
    twice: bool = True


@dataclass(frozen=True, slots=True)
class VaultSettings:
    folder: str = "vault"
    keep: int = 2
    best: bool = True


@dataclass(frozen=True, slots=True)
class JournalSettings:
    file: str = "journal.jsonl"
    flush_every: int = 5


@dataclass(frozen=True, slots=True)
class RankSettings:
    backend: str = "gloo"
    minutes: int = 60


@dataclass(frozen=True, slots=True)
class RunSettings:
    seed: int = 17
    threads: int = 1
    loud: bool = False
    storage: StorageSettings = field(default_factory=StorageSettings)
    quota: QuotaSettings = field(default_factory=QuotaSettings)
    feed: FeedSettings = field(default_factory=FeedSettings)
    vision: VisionSettings = field(default_factory=VisionSettings)
    fit: FitSettings = field(default_factory=FitSettings)
    judge: JudgeSettings = field(default_factory=JudgeSettings)
    vault: VaultSettings = field(default_factory=VaultSettings)
    journal: JournalSettings = field(default_factory=JournalSettings)
    ranks: RankSettings = field(default_factory=RankSettings)
