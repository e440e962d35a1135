"""Tests of what an object is."""

from __future__ import annotations

import ast

import pytest

from hangdoc.diagnosis.source.type_tests import asks_only_for_types


def asks(test: str) -> bool:
    return asks_only_for_types(ast.parse(f"if {test}:\n    pass"), 1, "")


@pytest.mark.parametrize(
    "test",
    [
        "isinstance(data, Tensor)",
        "not inspect.isfunction(given)",
        "isinstance(data, kind) and (other is None or not isinstance(data, other))",
        "isinstance(data, list) or callable(data)",
    ],
)
def test_asks_for_nothing_but_types(test: str) -> None:
    assert asks(test)


@pytest.mark.parametrize(
    "test", ["data is None or isinstance(data, Tensor)", "isinstance(data, list) and len(data) > 1", "kind is None"]
)
def test_asks_for_what_it_holds_as_well(test: str) -> None:
    assert not asks(test)


def test_of_an_expression_its_text_is_read() -> None:
    assert asks_only_for_types(None, 1, "if callable(hook)")
    assert not asks_only_for_types(None, 1, "if isinstance(data, dtype) and (wrong_dtype is None or not isin…")
