"""What kind of items a loop goes over, by the source."""

from __future__ import annotations

import ast

import pytest

from hangdoc.diagnosis.source.item_kinds import Items, kind_of_items
from hangdoc.diagnosis.source.settings import place_of
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.model.snapshot import SourceText

PROGRAM = """
class Scores:
    def __init__(self, path):
        self.table = {}
        self.rows = [1, 2]
        self.unknown = load(path)

    def batches(self):
        while True:
            yield 1

    def results(self):
        for each in self:
            pass
"""


@pytest.mark.parametrize(
    ("over", "kind"),
    [
        ("self.table", Items.KEYS),
        ("sorted(self.table)", Items.KEYS),
        ("sorted(self.table.items(), key=by_name)", Items.KEYS),
        ("{*names}", Items.KEYS),
        ("self.rows", Items.COUNTED),
        ("self.rows[1:]", Items.COUNTED),
        ("list(self.batches())", Items.COUNTED),
        ("self.batches()", Items.YIELDED),
        ("(f(x) for x in self.rows)", Items.YIELDED),
        ("self.unknown", None),
        ("sorted(self.unknown)", None),
    ],
)
def test_kinds(over: str, kind: Items | None) -> None:
    sources = Sources((SourceText("train.py", "<module>", 1, PROGRAM),))
    at = place_of(sources, "train.py", 13)
    assert at is not None
    assert kind_of_items(ast.parse(over, mode="eval").body, sources, at) is kind
