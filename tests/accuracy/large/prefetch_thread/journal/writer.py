"""A journal: one JSON object a line."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any, TextIO

from settings.model import JournalSettings


class NullJournal:
    """Writes nothing; for the ranks that do not lead."""

    def __enter__(self) -> NullJournal:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def note(self, event: str, **values: Any) -> None:
        """Forget it."""


class Journal:
    """Writes events to a file, a context manager."""

    def __init__(self, path: Path, settings: JournalSettings):
        self.path = path
        self.settings = settings
        self.file: TextIO | None = None
        self.lines = 0
        self.began = time.monotonic()

    def __enter__(self) -> Journal:
        if self.path.parent != Path():
            self.path.parent.mkdir(parents=True, exist_ok=True)
        self.file = self.path.open("a", encoding="utf-8")
        return self

    def __exit__(self, *_: object) -> None:
        if self.file is not None:
            self.file.close()

    def note(self, event: str, **values: Any) -> None:
        """One line. Numbers that are not finite become null, as JSON has none."""
        if self.file is None:
            return
        plain = {
            name: None if isinstance(each, float) and not math.isfinite(each) else each for name, each in values.items()
        }
        row = {"at": round(time.monotonic() - self.began, 3), "event": event}
        self.file.write(json.dumps({**row, **plain}) + "\n")
        self.lines += 1
        if self.lines % self.settings.flush_every == 0:
            self.file.flush()
