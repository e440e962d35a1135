"""What may raise before a call, as the source shows it."""

from __future__ import annotations

import ast

import pytest

from hangdoc.diagnosis.source.handlers import only_looks_up


@pytest.mark.parametrize(
    ("tried", "looks_up"),
    [
        ("return self.known[key]", True),
        ("x = table[i]", True),
        ("return self.known[make(key)]", False),
        ("run()", False),
    ],
)
def test_what_is_tried_only_looks_something_up(tried: str, looks_up: bool) -> None:
    tree = ast.parse(f"def scale(self, key):\n    try:\n        {tried}\n    except KeyError:\n        measure()\n")
    assert only_looks_up(tree, 4) is looks_up
    assert only_looks_up(tree, 2) is False
