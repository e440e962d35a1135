"""Which statements lead round letting a lock go, from sources alone."""

from __future__ import annotations

import pytest

from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.ways_round import ways_round_letting_go
from hangdoc.model.process import Frame
from hangdoc.model.snapshot import SourceText

FILE = "/job/train.py"
TAKES = "def load(self, parts):\n    for part in parts:\n        self.places.acquire()\n"
LETS_GO = "        self.places.release()\n"


@pytest.mark.parametrize(
    ("between", "lines"),
    [
        ("        if part is None:\n            continue\n", [5]),
        ("        if part is None:\n            return\n", [5]),
        ("        if part is None:\n            raise ValueError(part)\n", [5]),
        ("        for row in part:\n            if row is None:\n                continue\n", []),
        ("        while True:\n            if self.read(part):\n                break\n", []),
        ("        try:\n            if part is None:\n                raise KeyError\n        except KeyError:\n"
         "            pass\n", []),
        ("        def rows():\n            if part is None:\n                return []\n", []),
    ],
)  # fmt: skip
def test_what_leaves_before_the_lock_is_let_go(between: str, lines: list[int]) -> None:
    sources = Sources((SourceText(FILE, "load", 1, TAKES + between + LETS_GO),))
    assert [line for line, _ in ways_round_letting_go(Frame(FILE, 3, "load"), sources)] == lines
