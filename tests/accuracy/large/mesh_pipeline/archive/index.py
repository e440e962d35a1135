from __future__ import annotations

import json
from pathlib import Path


class Index:
    """Which steps were kept."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def steps(self) -> list[int]:
        if not self.path.exists():
            return []
        try:
            found = json.loads(self.path.read_text())
        except ValueError:
            return []
        return sorted(step for step in found if isinstance(step, int))

    def newest(self) -> int | None:
        steps = self.steps()
        return steps[-1] if steps else None

    def add(self, step: int, keep: int) -> list[int]:
        """Returns the steps that go."""
        steps = [*(each for each in self.steps() if each != step), step]
        gone = steps[:-keep] if len(steps) > keep else []
        self.path.write_text(json.dumps([each for each in steps if each not in gone]))
        return gone
