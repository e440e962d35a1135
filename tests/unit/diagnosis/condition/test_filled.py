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


@pytest.mark.parametrize(
    "made",
    [
        'self.match = MetricCollection({"match": Match(), "mean": Mean()})',
        "parts = [Match(), Mean()]\n        self.match = MetricCollection(parts)",
        "self.match = collected()",
    ],
)
def test_a_metric_in_a_collection(made: str) -> None:
    collected = "def collected():\n    return MetricCollection([Match(), Mean()])\n"
    program = f"{PROGRAM}{collected}".replace("self.match = Match()", made)
    assert told(program) == [(5, "if len(found) == 0:")]


def test_the_condition_in_what_update_calls() -> None:
    program = PROGRAM.replace(
        "        if len(found) == 0:\n            return\n        self.tables.append(match(found, truth))",
        "        self._keep(match(found, truth))\n    def _keep(self, row):\n"
        "        if row is not None:\n            self.tables += [row]",
    )
    assert told(program) == [(7, "if row is not None:")]


def test_an_update_that_a_base_of_the_class_has() -> None:
    program = PROGRAM.replace("class Match(Metric):", "class Base(Metric):").replace(
        "class Fit:", "class Match(Base):\n    full = False\nclass Fit:"
    )
    assert told(program) == [(5, "if len(found) == 0:")]


def test_a_metric_that_is_called() -> None:
    assert told(PROGRAM.replace("self.match.update(", "f1 = self.match(")) == [(5, "if len(found) == 0:")]
