"""Windows of context and horizon over the record of one station."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Window:
    station: int
    """Index among the stations of this rank."""
    start: int
    night: bool


def training_hours(station, settings):
    return int(station.hours * (1.0 - settings.hold_out))


def windows(index, station, settings, *, held_out=False):
    """Windows of the training hours, or of those held out; none crosses the border."""
    border = training_hours(station, settings)
    first, last = (border, station.hours) if held_out else (0, border)
    length = settings.context + settings.horizon
    stride = settings.horizon if held_out else settings.stride
    found = []
    for start in range(first, last - length + 1, stride):
        hour = (station.since + start + settings.context) % 24
        found.append(Window(index, start, night=hour < 6 or hour >= 20))
    return found


def without_gaps(found, stations, length, most=4):
    """Leave out windows in which more than ``most`` hours of values are missing."""
    kept = []
    for window in found:
        station = stations[window.station]
        if station.gaps:
            piece = station.values[window.start : window.start + length]
            missing = int(piece.isnan().any(dim=1).sum())
            if missing > most:
                continue
        kept.append(window)
    return kept
