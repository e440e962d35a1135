"""A library's loop that one side has left may have been begun again by the others, in the next round around it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from hangdoc.diagnosis.condition.branch_point import branch_point
from hangdoc.diagnosis.condition.loops.begun_again import may_have_begun_again
from hangdoc.diagnosis.source.guards import guards
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.model.process import Frame
from hangdoc.model.snapshot import SourceText

LIBRARY = "/venv/lib/python3.11/site-packages/somelib/engine.py"
ENGINE = """def run(self, data):
    {around}
        self._run_once()
        self._fire(Events.EPOCH_COMPLETED)
def _run_once(self):
    while True:
        self.process(next(self._it))
"""
MAIN = Frame("/home/me/train.py", 40, "main")
HANDLER = Frame("/home/me/train.py", 9, "validate"), Frame(LIBRARY, 4, "run"), MAIN
STEP = Frame("/home/me/train.py", 20, "step"), Frame(LIBRARY, 7, "_run_once"), Frame(LIBRARY, 3, "run"), MAIN


class Shown:
    """Values of one name in one function of the library."""

    def __init__(self, epochs: dict[int, str]) -> None:
        self.epochs = epochs

    def of(self, file: str, function: str, name: str) -> dict[int, str]:
        return self.epochs if (file, function, name) == (LIBRARY, "run", "epoch") else {}


WHILE, FOR = "while self.state.epoch < self.state.last:", "for epoch in range(self.last):"


@pytest.mark.parametrize(
    ("around", "epochs", "may"),
    [
        (WHILE, {}, True),
        (FOR, {}, True),
        (FOR, {0: "3", 1: "4"}, True),
        (FOR, {0: "3", 1: "3"}, False),
        ("if self.batches:", {}, False),
    ],
)
def test_unless_the_rounds_around_it_are_seen_to_be_one(around: str, epochs: dict[int, str], may: bool) -> None:
    sources = Sources((SourceText(LIBRARY, "<module>", 1, ENGINE.format(around=around)),))
    case: Any = SimpleNamespace(sources=sources, values=Shown(epochs))
    tree = sources.function(LIBRARY, 7)
    assert tree is not None
    loop = branch_point(guards(tree, 7)[-1], STEP[1], 1, 1.0)
    assert may_have_begun_again(case, loop, (HANDLER, STEP), ((0,), (1,))) == may
