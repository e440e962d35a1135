"""Reads the records of a pack again and again, shuffled within a window."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator

from settings.model import StorageSettings
from storage.pack import Pack, Picture, Record
from storage.quota import Quota

log = logging.getLogger("sorter.reader")


class RecordReader:
    """Yields pictures; goes round and round in the pack."""

    def __init__(self, pack: Pack, quota: Quota, settings: StorageSettings, seed: int):
        self.pack = pack
        self.quota = quota
        self.settings = settings
        self.chance = random.Random(seed)
        self.damaged: set[int] = set()
        self.rounds = 0

    def shuffled(self) -> Iterator[Record]:
        """All records once. A record moves by about the length of the window."""
        window: list[Record] = []
        for record in self.pack.records:
            if record.number in self.damaged:
                continue
            window.append(record)
            if len(window) > self.settings.window:
                yield window.pop(self.chance.randrange(len(window)))
        self.chance.shuffle(window)
        yield from window

    def __iter__(self) -> Iterator[Picture]:
        while True:
            for record in self.shuffled():
                if not self.quota.admit(record.size):
                    return
                picture = self.pack.read(record, verify=self.settings.verify)
                if picture is None:
                    log.info("record %d is damaged", record.number)
                    self.damaged.add(record.number)
                    continue
                if self.quota.passed_half():
                    log.info("half of the allowance is read")
                yield picture
            self.rounds += 1
            if len(self.damaged) == len(self.pack):
                raise ValueError(f"all records of {self.pack.path.name} are damaged")
