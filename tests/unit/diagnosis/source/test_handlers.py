"""What may raise before a call, as the source shows it."""

from __future__ import annotations

import ast

import pytest

from hangdoc.diagnosis.source.handlers import draws_items


@pytest.mark.parametrize(
    ("header", "raises"),
    [
        ("for batch in loader:", True),
        ("for batch in enumerate(loader):", True),
        ("for step in range(n):", False),
        ("for name in ('loss', 'accuracy'):", False),
    ],
)
def test_the_next_item_of_a_loop_may_raise(header: str, raises: bool) -> None:
    tree = ast.parse(f"def evaluate(loader, n):\n    {header}\n        reduce()\n    barrier()\n")
    assert draws_items(tree, 1, 3) is raises
    assert draws_items(tree, 1, 4) is False
    assert draws_items(tree, 3, 3) is False
