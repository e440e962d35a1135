"""Batches of a rank: its windows, shuffled anew in each epoch, read through a small cache."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

import torch

from stations.augment import Augmenter
from stations.scaling import WindowScaler
from stations.windows import windows, without_gaps


@dataclass
class Batch:
    context: torch.Tensor
    """(batch, hours, channels), scaled."""
    target: torch.Tensor
    """(batch, horizon), the wind, scaled."""
    night: torch.Tensor

    def __len__(self):
        return self.context.shape[0]


class WindowCache:
    """Scaled windows that were used lately."""

    def __init__(self, capacity):
        self.capacity = capacity
        self.items = OrderedDict()
        self.hits = 0
        self.misses = 0

    def get(self, window, make):
        if window in self.items:
            self.items.move_to_end(window)
            self.hits += 1
            return self.items[window]
        self.misses += 1
        made = make(window)
        self.items[window] = made
        while len(self.items) > self.capacity:
            self.items.popitem(last=False)
        return made


class BatchPlan:
    """What this rank trains on, epoch by epoch."""

    def __init__(self, stations, settings, seed):
        self.stations = stations
        self.settings = settings
        self.records = [station.filled() for station in stations]
        self.source = torch.Generator().manual_seed(seed)
        self.augment = Augmenter(settings, self.source)
        self.scaler = WindowScaler()
        self.cache = WindowCache(capacity=40)
        length = settings.context + settings.horizon
        found = [window for index, each in enumerate(stations) for window in windows(index, each, settings)]
        self.windows = without_gaps(found, stations, length)
        self.lost = len(found) - len(self.windows)

    def full_batches(self):
        return len(self.windows) // self.settings.batch

    def order(self, epoch):
        """Shuffled windows; from the second epoch on, those of the night come once in two epochs only."""
        source = torch.Generator().manual_seed(self.source.initial_seed() * 31 + epoch)
        shuffled = [self.windows[index] for index in torch.randperm(len(self.windows), generator=source).tolist()]
        if epoch == 0:
            return shuffled
        kept = [each for each in shuffled if not each.night or (each.start + epoch) % 2]
        rest = [each for each in shuffled if each.night and not (each.start + epoch) % 2]
        return kept + rest

    def epoch(self, epoch, steps):
        """Yield ``steps`` batches; starts over where this rank has fewer windows than that."""
        order = self.order(epoch)
        size = self.settings.batch
        at = 0
        for _ in range(steps):
            if at + size > len(order):
                at = 0
            yield self.collate(order[at : at + size])
            at += size

    def collate(self, chosen):
        contexts, targets = [], []
        for window in chosen:
            context, target = self.cache.get(window, self.cut)
            contexts.append(self.augment(context))
            targets.append(target)
        night = torch.tensor([window.night for window in chosen])
        return Batch(torch.stack(contexts), torch.stack(targets), night)

    def cut(self, window):
        record = self.records[window.station]
        middle = window.start + self.settings.context
        context = record[window.start : middle]
        fitted = self.scaler.fit(context)
        target = self.scaler.scale(record[middle : middle + self.settings.horizon], fitted)
        return self.scaler.scale(context, fitted), target[:, 0]
