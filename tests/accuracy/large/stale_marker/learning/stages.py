"""The stages of a training."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from settings.ini import Configuration, ConfigurationError


@dataclass(frozen=True)
class Stage:
    name: str
    window: int
    horizon: int
    epochs: int
    stride: int


def stages_of(configuration: Configuration) -> list[Stage]:
    names = configuration.words("stages", "names")
    columns = [configuration.words("stages", column) for column in ("windows", "horizons", "epochs", "strides")]
    uneven = [len(column) for column in columns if len(column) != len(names)]
    if uneven:
        raise ConfigurationError(f"[stages] {len(names)} names, but {uneven[0]} values")
    stages = [Stage(name, *map(int, values)) for name, *values in zip(names, *columns, strict=True)]
    for earlier, later in pairwise(stages):
        if later.horizon < earlier.horizon:
            raise ConfigurationError(f"[stages] {later.name} looks less far than {earlier.name}")
    if not stages:
        raise ConfigurationError("[stages] there is none")
    return stages
