"""Can what is called be that function: a method of an object's attribute, a bare name?"""

from __future__ import annotations

import ast

import pytest

from hangdoc.model.asked import can_be_method


@pytest.mark.parametrize(
    ("function", "called", "can"),
    [
        ("def get(source): ...", "self.handlers.get", False),
        ("def get(source): ...", "self.cfg.table.get", False),
        ("def get(source): ...", "tables.get", True),
        ("def get(source): ...", "get", True),
        ("def get(source): ...", "self.get", True),
        ("def get(self, key): ...", "self.handlers.get", True),
        ("@staticmethod\ndef get(key): ...", "self.handlers.get", True),
        ("def any(self, vote): ...", "any", False),
        ("@classmethod\ndef any(cls, vote): ...", "any", False),
        ("def any(self, vote): ...", "world.any", True),
        ("def any(votes): ...", "any", True),
    ],
)
def test_a_method_of_an_attribute(function: str, called: str, can: bool) -> None:
    assert can_be_method(ast.parse(function).body[0], ast.parse(called, mode="eval").body) is can
