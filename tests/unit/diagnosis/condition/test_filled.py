"""The conditions under which the user's code fills what a library gathers."""

from __future__ import annotations

import textwrap

import pytest

from hangdoc.diagnosis.condition.elsewhere.filled import filled_under
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.model.process import Frame
from hangdoc.model.snapshot import SourceText

FILE = "/job/train.py"
PROGRAM = """
def evaluate(self):
    return self.match.compute()
class Match(Metric):
    def update(self, found, truth):
        if len(found) == 0:
            return
        self.tables.append(match(found, truth))
class Fit:
    def __init__(self):
        self.match = Match()
    def step(self, found, truth):
        self.match.update(found, truth)
"""


def told(program: str) -> list[tuple[int, str]]:
    """(line, source) of each condition that is told of `self.match.compute()`, at line 2."""
    sources = Sources((SourceText(FILE, "<module>", 1, textwrap.dedent(program).lstrip("\n")),))
    return [(each.line, each.source) for each in filled_under(sources, Frame(FILE, 2, "evaluate"))]


def test_a_return_in_the_method_that_fills_it() -> None:
    assert told(PROGRAM) == [(5, "if len(found) == 0:")]


def test_a_condition_around_the_call_that_fills_it_comes_first() -> None:
    program = PROGRAM.replace("        self.match.update", "        if truth.any():\n            self.match.update")
    assert told(program) == [(12, "if truth.any():"), (5, "if len(found) == 0:")]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("self.tables.append(match(found, truth))", "self.total += match(found, truth)"),  # no more to gather
        ("if len(found) == 0:", "if self.rank == 0:"),  # differs from the beginning
        ("self.match = Match()", "self.match = Match() if fast else Other()"),
        ("class Fit:", "class Match:\n    pass\nclass Fit:"),
        ("self.match.update(found, truth)", "self.other.update(found, truth)"),
    ],
)
def test_nothing_is_told(old: str, new: str) -> None:
    assert old in PROGRAM
    assert told(PROGRAM.replace(old, new)) == []
