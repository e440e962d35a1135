"""The stations: where they are, since when they measure, and which rank has which."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch

from stations.synth import measure

CHANNELS = ("wind", "gust", "pressure", "humidity")
_CLIMATES = ("coast", "plain", "hill")


@dataclass
class Station:
    number: int
    climate: str
    since: int
    values: torch.Tensor
    """(hours, channels); NaN where a value is missing."""
    faults: list[tuple[int, int]] = field(default_factory=list)

    @property
    def hours(self):
        return self.values.shape[0]

    @property
    def gaps(self):
        return int(torch.isnan(self.values).any(dim=1).sum())

    def filled(self):
        """Values without gaps: the last one known stands in, the first one known before it."""
        if not self.gaps:
            return self.values
        values = self.values.clone()
        for channel in range(values.shape[1]):
            column = values[:, channel]
            known = ~torch.isnan(column)
            if not bool(known.any()):
                column.zero_()
                continue
            last = float(column[known][0])
            for hour in range(column.shape[0]):
                if bool(known[hour]):
                    last = float(column[hour])
                else:
                    column[hour] = last
        return values


class Catalog:
    """All stations in the order of their numbers."""

    channels = len(CHANNELS)

    def __init__(self, stations):
        self.stations = sorted(stations, key=lambda station: station.number)
        numbers = [station.number for station in self.stations]
        if len(set(numbers)) != len(numbers):
            raise ValueError("two stations have one number")

    def __len__(self):
        return len(self.stations)

    @classmethod
    def synthetic(cls, settings):
        stations = []
        for number in range(settings.stations):
            climate = _CLIMATES[number % len(_CLIMATES)]
            # Younger stations have measured for less long.
            since = 0 if number < 8 else 12 * (number - 7)
            hours = settings.hours - since
            values, faults = measure(number, climate, hours, len(CHANNELS))
            stations.append(Station(number, climate, since, values, faults))
        return cls(stations)

    def share(self, rank, size):
        """The stations of one rank: every ``size``-th, the coast ones first, since they have most to learn from."""
        own = [station for station in self.stations if station.number % size == rank]
        if not own:
            raise ValueError(f"{len(self)} stations are too few for {size} ranks")
        return sorted(own, key=lambda station: (station.climate != "coast", station.number))


def distance(one, other):
    """Hours by which the records of two stations overlap, as a share of the longer one."""
    start = max(one.since, other.since)
    end = min(one.since + one.hours, other.since + other.hours)
    longer = max(one.hours, other.hours)
    return 1.0 - max(0, end - start) / longer if longer else math.nan
