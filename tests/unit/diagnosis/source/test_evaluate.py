"""The truth of conditions by their names' values, and what a loop goes over."""

from __future__ import annotations

import ast

import pytest

from hangdoc.diagnosis.source.evaluate import is_expression, sets_constant, truth
from hangdoc.diagnosis.source.loops import calls_its_items


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
