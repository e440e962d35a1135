"""Whom ranks wait for in messages, by how far they have come."""

from __future__ import annotations

import pytest

from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.state.awaited_peers import is_to_come
from hangdoc.model.process import Frame, Stack
from hangdoc.model.snapshot import SourceText

FILE = "/job/rows.py"
TEXT = """
def move(self, even):
    self.flush(heads)
    self.flush(blocks)
    if even:
        self.flush(up)
    else:
        self.flush(down)
    for part in parts:
        self.flush(part)
        self.flush(rest)
def train(self):
    for step in steps:
        self.move()
def once(self):
    self.move()
"""


def at(line: int, caller: int = 16) -> Stack:
    names = {14: "train", 16: "once"}
    return (Frame(FILE, 30, "flush"), Frame(FILE, line, "move"), Frame(FILE, caller, names[caller]))


@pytest.mark.parametrize(
    ("here", "there", "comes"),
    [
        (at(3), at(4), True),
        (at(4), at(3), False),
        (at(3), at(3), False),
        (at(6), at(8), False),  # the other arm
        (at(4), at(10), True),
        (at(10), at(11), False),  # of a loop: it may be in a later round
        (at(3, 14), at(4, 14), False),
    ],
)
def test_who_is_still_to_come_to_a_line_of_the_same_call(here: Stack, there: Stack, *, comes: bool) -> None:
    assert is_to_come(Sources((SourceText(FILE, "<module>", 1, TEXT),)), here, there) == comes
