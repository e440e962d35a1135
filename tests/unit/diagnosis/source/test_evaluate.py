"""The truth of conditions by their names' values, and what a loop goes over."""

from __future__ import annotations

import ast

import pytest

from hangdoc.diagnosis.source.evaluate import is_expression, sets_constant, truth, value_of
from hangdoc.diagnosis.source.loops import calls_its_items, last_of_range
from hangdoc.diagnosis.source.rank_tests import asks_for_rank
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.model.snapshot import SourceText


@pytest.mark.parametrize(
    ("condition", "values", "expected"),
    [
        ("rank", {"rank": "2"}, True),
        ("rank", {"rank": "0"}, False),
        ("rank != 0 and step % 4 == 0", {"rank": "2", "step": "8"}, True),
        ("rank != 0 and step % 4 == 0", {"rank": "2"}, None),
        ("rank != 0 and step % 4 == 0", {"rank": "0"}, False),
        ("rank == 0 or self.always", {"self.always": "True"}, True),
        ("not self.model", {"self.model": "<Model>"}, None),
        ("step % every", {"step": "3", "every": "0"}, None),
        ("due(rank)", {"rank": "0"}, None),
        ("best is None", {"best": "None"}, True),
        ("not rows", {"rows": "[]"}, True),
        ("not rows", {"rows": "[(0.5, 3)]"}, False),
        ("rows and rank", {"rows": "{}", "rank": "1"}, False),
        ("rows == 2", {"rows": "[]"}, None),
    ],
)
def test_what_is_known_of_a_condition(condition: str, values: dict[str, str], expected: bool | None) -> None:
    assert truth(ast.parse(condition, mode="eval").body, values) is expected


@pytest.mark.parametrize(
    ("loop", "expected"),
    [
        ("for layer in self.layers:\n    x = layer(x)", True),
        ("for i, block in enumerate(self.blocks):\n    x = checkpoint(block, x)", True),
        ("for batch in self.batches:\n    train(batch)", False),
        ("for batch in self.loader():\n    batch()", False),
        ("while more():\n    more()", False),
    ],
)
def test_items_that_are_called_are_parts_of_a_program(loop: str, expected: bool) -> None:
    assert calls_its_items(ast.parse(loop), 1) is expected


def test_the_last_round_of_a_range() -> None:
    found = last_of_range(ast.parse("for step in range(first, first + steps):\n    push(step)"), 1)
    assert found is not None
    name, last = found
    assert (name, value_of(last, {"first": "5", "steps": "5"})) == ("step", "9")
    assert value_of(last, {"first": "5"}) == ""
    assert last_of_range(ast.parse("for step in range(0, 9, 2):\n    push(step)"), 1) is None


PROGRAM = """class Probe:
    def due(self, step):
        return step % 4 == 0 and self.engine.global_rank == 0

    def late(self, step):
        return step > self.last

    def chosen(self):
        return self.due(3)


def step(probe, step):
    if probe.due(step):
        probe.measure()
    if probe.late(step):
        probe.measure()
    if probe.chosen():
        probe.measure()
"""


@pytest.mark.parametrize(("line", "expected"), [(13, True), (15, False), (17, True)])
def test_a_condition_that_asks_for_the_rank_in_a_function(line: int, expected: bool) -> None:
    sources = Sources((SourceText("/job/train.py", "<module>", 1, PROGRAM),))
    assert asks_for_rank(sources, "/job/train.py", line) is expected


@pytest.mark.parametrize(
    ("statement", "constant"),
    [("self.stale = True", True), ("return None", True), ("x = []", True), ("scale *= 2", False), ("x = f()", False)],
)
def test_what_sets_a_value_that_is_written_there(statement: str, constant: bool) -> None:
    assert sets_constant(statement) is constant


def test_what_is_an_expression() -> None:
    assert is_expression("a + b(1)")
    assert not is_expression("a = b")
    assert not is_expression("")
