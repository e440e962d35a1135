"""Measurements of weather stations, made with gaps and outliers, and mended."""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

from cluster.world import World
from settings.ini import Configuration

KINDS = ("coast", "valley", "summit")
PER_DAY = 4


@dataclass(frozen=True)
class Station:
    name: str
    kind: str
    rows: tuple[tuple[float, ...], ...]
    """One row for each quarter of a day, one column for each value."""
    mended: int


class StationFile:
    def __init__(self, stations: list[Station]) -> None:
        self.stations = stations

    def __len__(self) -> int:
        return len(self.stations)

    def __iter__(self) -> Iterator[Station]:
        return iter(self.stations)

    @property
    def names(self) -> Iterator[str]:
        return (station.name for station in self.stations)

    @property
    def bytes(self) -> int:
        return sum(4 * len(station.rows) * len(station.rows[0]) for station in self.stations if station.rows)

    @property
    def fingerprint(self) -> str:
        digest = hashlib.sha256()
        for station in self.stations:
            digest.update(station.name.encode())
            digest.update(f"{sum(map(sum, station.rows)):.6f}".encode())
        return digest.hexdigest()[:16]

    def corrected(self) -> StationFile:
        """The same with another height of the first station."""
        first, *others = self.stations
        raised = tuple(tuple(value + 0.01 for value in row) for row in first.rows)
        return StationFile([replace(first, rows=raised), *others])

    @classmethod
    def draw(cls, configuration: Configuration, world: World) -> StationFile:
        chance = random.Random(40 + world.rank)
        values = configuration.words("data", "values")
        gap_share = configuration.number("data", "gap_share")
        outlier_share = configuration.number("data", "outlier_share")
        days = configuration.integer("data", "days")
        stations = []
        for number in range(configuration.integer("data", "stations")):
            kind = KINDS[(number + world.rank) % len(KINDS)]
            length = PER_DAY * (days - (7 if kind == "summit" else 0))
            columns, mended = [], 0
            for value in values:
                raw = measure(kind, value, length, chance)
                damaged = damage(raw, gap_share, outlier_share, chance)
                column, repairs = mend(damaged)
                columns.append(column)
                mended += repairs
            rows = tuple(zip(*columns, strict=True))
            stations.append(Station(f"{kind}-{world.rank}-{number}", kind, rows, mended))
        return cls(stations)


def measure(kind: str, value: str, length: int, chance: random.Random) -> list[float]:
    """A daily and a yearly wave with noise."""
    swing = {"coast": 0.5, "valley": 1.0, "summit": 0.8}[kind]
    noise = 0.3 if value == "wind" else 0.1
    level, measured = chance.gauss(0, 0.3), []
    for place in range(length):
        day = math.sin(2 * math.pi * place / PER_DAY)
        year = math.sin(2 * math.pi * place / (PER_DAY * 60))
        if value == "pressure" and chance.random() < 0.03:
            level += chance.gauss(0, 0.4)
        gust = abs(chance.gauss(0, 1)) if value == "wind" and chance.random() < 0.1 else 0.0
        measured.append(level + swing * day + year + gust + chance.gauss(0, noise))
    return measured


def damage(column: list[float], gap_share: float, outlier_share: float, chance: random.Random) -> list[float | None]:
    damaged: list[float | None] = []
    silent = 0
    for value in column:
        if silent == 0 and chance.random() < gap_share:
            silent = chance.randint(1, 4)
        if silent > 0:
            damaged.append(None)
            silent -= 1
        else:
            damaged.append(value + (8.0 if chance.random() < outlier_share else 0.0))
    return damaged


def mend(column: list[float | None]) -> tuple[list[float], int]:
    """Outliers cut, gaps filled from both sides. Returns how many values were touched, too."""
    known = [value for value in column if value is not None]
    if not known:
        return [0.0] * len(column), len(column)
    mean = sum(known) / len(known)
    spread = (sum((value - mean) ** 2 for value in known) / len(known)) ** 0.5 or 1.0
    mended: list[float] = []
    repairs = 0
    for place, value in enumerate(column):
        if value is None:
            before = mended[-1] if mended else None
            after = next((each for each in column[place + 1 : place + 6] if each is not None), None)
            sides = [side for side in (before, after) if side is not None]
            mended.append(sum(sides) / len(sides) if sides else mean)
            repairs += 1
        elif abs(value - mean) > 3.5 * spread:
            mended.append(mean + 3.5 * spread if value > mean else mean - 3.5 * spread)
            repairs += 1
        else:
            mended.append(value)
    return mended, repairs
