"""Windows out of the stations' rows."""

from __future__ import annotations

import logging

import torch

from feed.stations import StationFile
from learning.stages import Stage

LOG = logging.getLogger("forecast.windows")


def cut_windows(stations: StationFile, stage: Stage) -> tuple[torch.Tensor, torch.Tensor]:
    """Windows [number, length, values], normed by what is known at their time, and a weight for each."""
    length = stage.window + stage.horizon
    windows, weights = [], []
    dull = 0
    for station in stations:
        rows = torch.tensor(station.rows)
        if len(rows) < length:
            LOG.warning("%s is too short", station.name)
            continue
        trust = 1.0 if station.mended * 12 < len(rows) else 0.7
        for start in range(0, len(rows) - length + 1, stage.stride):
            window = rows[start : start + length]
            known = window[: stage.window]
            spread = known.std(dim=0)
            if float(spread.min()) < 0.05:
                dull += 1
                continue
            windows.append((window - known.mean(dim=0)) / spread)
            calm = float(spread.max()) < 1.5
            weights.append(trust if calm else 0.5 * trust)
    if dull:
        LOG.debug("%d windows in which nothing happens", dull)
    if not windows:
        return torch.empty(0, length, 1), torch.empty(0)
    return torch.stack(windows), torch.tensor(weights)
