"""Is one side in a block that lets its rank go first, while the other is about to enter it?"""

from __future__ import annotations

import pytest

from hangdoc.diagnosis.condition.elsewhere.led_block import led_block
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.model.process import Frame, Stack
from hangdoc.model.snapshot import SourceText

FILE = "/home/me/train.py"
STATE = "/venv/lib/python3.11/site-packages/accelerate/state.py"
CONTEXTLIB = "/usr/lib/python3.11/contextlib.py"
SOURCE = """\
def prepare(self):
    with self.{name}():
        rows = self.tokenize()
        if len(rows) < self.least:
            self.gather(rows)
    return rows
"""
BODY, ENTRANCE = 5, 2


def at_line(line: int, *below: Frame) -> Stack:
    return (*below, Frame(FILE, line, "prepare"))


def entering(function: str = "__enter__") -> Stack:
    context = Frame(CONTEXTLIB, 137, f"_GeneratorContextManager.{function}")
    return at_line(ENTRANCE, Frame(STATE, 418, "PartialState._goes_first"), context)


def sources(name: str) -> Sources:
    return Sources((SourceText(FILE, "prepare", 1, SOURCE.format(name=name).rstrip("\n")),))


@pytest.mark.parametrize("name", ["main_process_first", "local_main_process_first", "torch_distributed_zero_first"])
def test_the_others_are_at_its_entrance(name: str) -> None:
    found = led_block(sources(name), at_line(BODY), entering())
    assert found is not None
    assert (found.source, found.line) == (f"with self.{name}():", ENTRANCE)


@pytest.mark.parametrize(
    ("name", "mine", "theirs"),
    [
        ("synchronized", at_line(BODY), entering()),  # all enter it together: the others may be in another round
        ("main_process_first", at_line(BODY), entering("__exit__")),
        ("main_process_first", at_line(BODY), at_line(BODY)),
        ("main_process_first", at_line(6), entering()),  # already left
        ("main_process_first", entering(), at_line(BODY)),
    ],
)
def test_no_such_block(name: str, mine: Stack, theirs: Stack) -> None:
    assert led_block(sources(name), mine, theirs) is None
