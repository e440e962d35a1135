"""Measurements out of thin air: weather with days, fronts, gaps and now and then a sensor that is stuck."""

from __future__ import annotations

import torch

GUSTY = {"coast": 1.6, "plain": 1.0, "hill": 1.3}
# (station: from hour, to hour) in which the logger repeated its last record.
STUCK = {6: (141, 154)}
SILENT = {3: (40, 44), 9: (200, 203), 11: (17, 18)}


def measure(number, climate, hours, channels):
    """Values (hours, channels) of a station, and the hours in which something was wrong with it."""
    source = torch.Generator().manual_seed(1000 + number)
    hour = torch.arange(hours, dtype=torch.float32)
    values = torch.empty(hours, channels)
    for channel in range(channels):
        phase = 0.4 * number + channel
        daily = torch.sin(hour * (2 * torch.pi / 24) + phase)
        slow = torch.sin(hour * (2 * torch.pi / 170) + 0.7 * phase)
        noise = torch.randn(hours, generator=source)
        scale = GUSTY[climate] if channel < 2 else 1.0
        values[:, channel] = scale * (daily + 0.5 * slow + 0.25 * noise)
    for front in fronts(hours, source):
        width = min(9, hours - front)
        values[front : front + width, :2] += torch.hann_window(9)[:width, None] * 2.0
        if climate == "hill":
            values[front : front + width, 3] += 1.0
    faults = []
    if number in SILENT:
        start, end = SILENT[number]
        values[start:end] = torch.nan
        faults.append((start, end))
    if number in STUCK:
        start, end = STUCK[number]
        values[start:end] = values[start - 1]
        faults.append((start, end))
    return values, faults


def fronts(hours, source):
    """Hours at which a front comes through, at least two days apart."""
    found = []
    at = int(torch.randint(10, 40, (1,), generator=source))
    while at < hours - 2:
        found.append(at)
        at += 48 + int(torch.randint(0, 60, (1,), generator=source))
    return found
