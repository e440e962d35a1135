"""The error on held-out hours of all stations of all ranks."""

from __future__ import annotations

import logging

import torch

from evaluation.baseline import better_of
from metrics.errors import ErrorSums
from stations.scaling import WindowScaler
from stations.windows import windows, without_gaps

log = logging.getLogger("forecast.validation")


class Validator:
    """Each rank forecasts its own stations; only the sums travel."""

    def __init__(self, stations, settings, world, most=40):
        self.settings = settings
        self.world = world
        self.scaler = WindowScaler()
        self.records = [station.filled() for station in stations]
        length = settings.context + settings.horizon
        found = []
        for index, station in enumerate(stations):
            held_out = windows(index, station, settings, held_out=True)
            found += without_gaps(held_out, stations, length)
        if len(found) > most:
            log.debug("%d windows of %d are enough", most, len(found))
            found = found[:: -(-len(found) // most)]
        self.windows = found

    @torch.no_grad()
    def run(self, model):
        was_training = model.training
        model.eval()
        sums = ErrorSums()
        for batch in self.pieces(16):
            contexts, targets, simple = zip(*batch, strict=True)
            sums.add(model(torch.stack(contexts)), torch.stack(targets), torch.stack(simple))
        if was_training:
            model.train()
        return sums.result(self.world.total(sums.sums))

    def pieces(self, size):
        piece = []
        for window in self.windows:
            piece.append(self.cut(window))
            if len(piece) == size:
                yield piece
                piece = []
        if piece:
            yield piece

    def cut(self, window):
        record = self.records[window.station]
        middle = window.start + self.settings.context
        context = record[window.start : middle]
        fitted = self.scaler.fit(context)
        scaled = self.scaler.scale(context, fitted)
        target = self.scaler.scale(record[middle : middle + self.settings.horizon], fitted)[:, 0]
        return scaled, target, better_of(scaled, self.settings.horizon)
