"""Windows of one rank and one stage, on disk."""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path

import torch

from feed.stations import StationFile
from feed.windows import cut_windows
from learning.stages import Stage
from settings.ini import Configuration
from storage.locks import FileLock
from storage.places import Place

LOG = logging.getLogger("forecast.cache")


class WindowCache:
    def __init__(self, place: Place, stage: Stage, configuration: Configuration) -> None:
        self.place = place
        self.stage = stage
        self.lease = configuration.number("storage", "lease")
        self.pause = configuration.number("storage", "pause")
        self.keep_partial = configuration.flag("storage", "keep_partial")
        self.windows = torch.empty(0)
        self.weights = torch.empty(0)
        self.seconds = 0.0

    @property
    def data_path(self) -> Path:
        return self.place.folder / f"{self.stage.name}.pt"

    @property
    def index_path(self) -> Path:
        return self.place.folder / f"{self.stage.name}.json"

    @property
    def partial_path(self) -> Path:
        return self.place.folder / f"{self.stage.name}.partial"

    @property
    def lock_path(self) -> Path:
        return self.place.folder / f"{self.stage.name}.lock"

    def __len__(self) -> int:
        return len(self.windows)

    def complete(self, stations: StationFile) -> bool:
        """Whether the disk has the windows of exactly these stations."""
        if not self.index_path.exists() or not self.data_path.exists():
            return False
        try:
            index = json.loads(self.index_path.read_text())
        except ValueError:
            LOG.warning("%s is damaged", self.index_path)
            return False
        if index.get("fingerprint") != stations.fingerprint:
            LOG.info("%s is of other stations", self.index_path.name)
            return False
        return index.get("window") == self.stage.window and index.get("stride") == self.stage.stride

    def load(self) -> None:
        stored = torch.load(self.data_path, weights_only=True)
        self.windows, self.weights = stored["windows"], stored["weights"]

    def build(self, stations: StationFile) -> None:
        """Cut the windows and write them, under the lock."""
        begin = time.perf_counter()
        lock = FileLock(self.lock_path, takes_over=self.place.takes_over, lease=self.lease, pause=self.pause)
        with lock:
            if self.partial_path.exists() and not self.keep_partial:
                self.partial_path.unlink()
            if self.complete(stations):
                self.load()
            else:
                self.windows, self.weights = cut_windows(stations, self.stage)
                self._write(stations)
        self.seconds = time.perf_counter() - begin

    def _write(self, stations: StationFile) -> None:
        fresh = self.data_path.with_suffix(".new")
        torch.save({"windows": self.windows, "weights": self.weights}, fresh)
        fresh.replace(self.data_path)
        index = {"fingerprint": stations.fingerprint, "window": self.stage.window, "stride": self.stage.stride}
        self.index_path.write_text(json.dumps(index))
