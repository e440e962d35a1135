"""From which generator a program draws, and what it draws for a value."""

from __future__ import annotations

import ast

import pytest

from hangdoc.diagnosis.source.draws import drawn_for, drawn_in, may_be_the_same
from hangdoc.diagnosis.source.settings import place_of
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.model.snapshot import SourceText

PROGRAM = """
def partner(self):
    order = list(range(self.world))
    random.shuffle(order)
    return order[self.spot ^ 1]

def mix(self):
    peer = self.partner()
    dist.send(self.flat, peer)

def cut(rows):
    return rows[np.random.randint(9):]

def ring(self):
    peer = (self.rank + 1) % self.world
    dist.send(self.flat, peer)
"""
SOURCES = Sources((SourceText("train.py", "<module>", 1, PROGRAM),))


@pytest.mark.parametrize(
    ("text", "drawn"),
    [
        ("random.random() < p", {"random"}),
        ("torch.randperm(n)", {"torch"}),
        ("torch.randperm(n, generator=g)", {"object"}),
        ("self.rng.integers(4)", {"object"}),
        ("shuffle(order)", {""}),
        ("cut(rows)", {"np.random"}),
        ("len(rows)", set()),
    ],
)
def test_the_owner_of_a_draw_is_its_generator(text: str, drawn: set[str]) -> None:
    assert drawn_in(SOURCES, [ast.parse(text, mode="eval").body]) == drawn


@pytest.mark.parametrize(("line", "drawn"), [(9, {"random"}), (16, set())])
def test_a_value_is_drawn_by_what_sets_it(line: int, drawn: set[str]) -> None:
    at = place_of(SOURCES, "train.py", line)
    assert at is not None
    assert drawn_for(SOURCES, at, ast.Name("peer")) == drawn


def test_a_bare_name_may_draw_from_any_generator() -> None:
    assert may_be_the_same({"random"}, {"random", "torch"})
    assert may_be_the_same({""}, {"torch"})
    assert not may_be_the_same({"random"}, {"object"})
    assert not may_be_the_same(set(), {""})
