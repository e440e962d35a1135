"""What a library was given at one line, where that may differ between the ranks."""

from __future__ import annotations

import ast

import pytest

from hangdoc.diagnosis.causes.given_otherwise import _arguments, _decides


def test_arguments_with_a_name_are_found() -> None:
    tree = ast.parse("result = trainer.train(model, 3, resume_from_checkpoint=self.last, seed=make())")
    assert list(_arguments(tree, 1)) == [
        ("model", "", "model"),
        ("resume_from_checkpoint=self.last", "resume_from_checkpoint", "self.last"),
    ]


@pytest.mark.parametrize(
    ("word", "name", "values", "decides"),
    [
        ("resume_from_checkpoint", "last", {"None", "'…'"}, True),
        ("", "self.warm", {"True", "False"}, True),
        ("max_steps", "count", {"10", "12"}, True),
        ("seed", "seed", {"10", "11"}, False),
        ("", "is_main", {"True", "False"}, False),
    ],
)
def test_what_may_have_decided(word: str, name: str, values: set[str], decides: bool) -> None:
    assert _decides(word, name, values) is decides
