"""A test of what only counts the rounds of a loop, against a condition that skipped the others' call."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from hangdoc.diagnosis.condition.branch_point import BranchPoint, branch_point
from hangdoc.diagnosis.condition.loops.counted import skipping_before_counting
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.source.guards import guards
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.model.process import Frame
from hangdoc.model.snapshot import SourceText

FILE = "/job/loop.py"
PROGRAM = """\
def run(self):
    while True:
        if self.idle:
            wait()
        else:
            self.forward()
        {counts}
        if {test}:
            self.all_done()
"""
RANKS = ((3,), (0, 1))


def first(counts: str, test: str, seen: dict[int, str]) -> str:
    """The condition that comes first of the test and `if self.idle:`, with rank 3 in all_done(), 0 and 1 in
    forward()."""
    sources = Sources((SourceText(FILE, "run", 1, PROGRAM.format(counts=counts, test=test)),))
    values = SimpleNamespace(of=lambda *_: seen)
    case = cast(Case, cast(Any, SimpleNamespace(sources=sources, values=values)))
    points: list[BranchPoint] = []
    for line, side in ((9, 0), (6, 1)):
        tree = sources.function(FILE, line)
        assert tree is not None
        points += [branch_point(g, Frame(FILE, line, "run"), side, 1.0) for g in guards(tree, line) if g.kind == "if"]
    return skipping_before_counting(case, points, RANKS)[0].guard.condition


SKIPPED, COUNTED = "if self.idle:", "if self.steps % 8 == 0:"


@pytest.mark.parametrize("seen", [{}, {0: "16", 1: "16", 3: "24"}])
def test_what_only_counts_decides_nothing(seen: dict[int, str]) -> None:
    assert first("self.steps += 1", "self.steps % 8 == 0", seen) == SKIPPED
    assert first("self.steps += 1", "self.steps % EVERY == 0", seen) == "if self.idle:"


def test_a_side_that_is_behind_was_not_led_past_the_call() -> None:
    assert first("self.steps += 1", "self.steps % 8 == 0", {0: "24", 1: "24", 3: "16"}) == COUNTED


def test_a_count_of_something_else() -> None:
    assert first("self.tokens += self.last", "self.steps % 8 == 0", {}) == COUNTED
    assert first("self.steps += 1", "self.steps % 8 == 0 and loss > 2", {}) == "if self.steps % 8 == 0 and loss > 2:"
