"""Of several conditions around a call, the one that the rank decides comes first."""

from __future__ import annotations

import textwrap
from dataclasses import replace

import pytest

from hangdoc.diagnosis.condition.branch_point import branch_point
from hangdoc.diagnosis.condition.decided_by_rank import rank_decided_first
from hangdoc.diagnosis.source.guards import guards
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.model.process import Frame
from hangdoc.model.snapshot import SourceText

FILE = "/job/report.py"
PROGRAM = """\
class Reporter:
    def report(self, step):
        if step % self.every:
            return
        self.lines += self.active and self.emit(step)
"""
ASKED = "self.active"
COUNTED = "if step % self.every:"


def order(program: str, *, passed_by_both: bool = False, differs: bool = False) -> list[str]:
    """The conditions of the call of emit(), of which the counted one is thought the likelier. ``differs``: its value
    does."""
    sources = Sources((SourceText(FILE, "<module>", 1, program),))
    tree = sources.function(FILE, 5)
    assert tree is not None
    counted, asked = (branch_point(g, Frame(FILE, 5, "report"), 0, 1.0) for g in guards(tree, 5, frozenset({"emit"})))
    found = [replace(counted, differs=differs), asked]
    return [p.guard.condition for p in rank_decided_first(sources, found, lambda _: passed_by_both)]


def told(rest: str) -> str:
    return PROGRAM + textwrap.indent(textwrap.dedent(rest), "    ")


BY_RANK = {
    "a property": "@property\ndef active(self):\n    return self.rank in self.wanted\n",
    "a flag": "def __init__(self, rank):\n    self.active = rank == 0\n",
    "a flag that is set under it": "def start(self):\n    self.active = False\n    if dist.get_rank() == 1:\n"
    "        self.active = True\n",
}


@pytest.mark.parametrize("rest", ["def start(self, cost):\n    self.active = cost > 3\n", ""])
def test_what_something_else_decides_does_not(rest: str) -> None:
    assert order(told(rest)) == [COUNTED, ASKED]


def test_what_both_sides_have_been_under_is_not_decided_by_the_rank_alone() -> None:
    assert order(told(BY_RANK["a property"]), passed_by_both=True) == [COUNTED, ASKED]


def test_a_value_that_is_seen_to_differ_says_more() -> None:
    assert order(told(BY_RANK["a property"]), differs=True) == [COUNTED, ASKED]
