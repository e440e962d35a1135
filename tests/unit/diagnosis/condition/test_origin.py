"""Where the argument of a call comes from."""

from __future__ import annotations

import textwrap

import pytest

from hangdoc.diagnosis.condition.origin import set_at
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.model.process import Frame
from hangdoc.model.snapshot import SourceText

FILE = "/job/train.py"
PROGRAM = """
class Search:
    def run(self, losses):
        source = self.best(losses)
        self.adopt(source)

    def adopt(self, root):
        for tensor in self.tensors:
            dist.broadcast(tensor, src=root)

    def reduce(self, loss):
        for root in (0, 1):
            dist.reduce(loss, root)
        first = 0
        if self.odd:
            first = 1
        dist.reduce(loss, dst=first)
        dist.broadcast(loss, 0)
"""


def found(what: str, op: str, *lines: tuple[int, str]) -> tuple[int, str] | None:
    sources = Sources((SourceText(FILE, "<module>", 1, textwrap.dedent(PROGRAM).lstrip("\n")),))
    stack = tuple(Frame(FILE, line, function) for line, function in lines)
    condition = set_at(sources, stack, op, what)
    return (condition.line, condition.source) if condition is not None else None


def test_a_root_is_followed_to_the_caller_that_set_it() -> None:
    assert found("root", "broadcast", (8, "adopt"), (4, "run")) == (3, "source = self.best(losses)")


def test_a_tensor_that_the_function_itself_sets() -> None:
    assert found("arguments", "broadcast", (8, "adopt"), (4, "run")) == (7, "for tensor in self.tensors:")


def test_a_positional_root_of_a_loop() -> None:
    assert found("root", "reduce", (12, "reduce")) == (11, "for root in (0, 1):")


@pytest.mark.parametrize("line, op", [(16, "reduce"), (17, "broadcast"), (5, "broadcast")])
def test_what_several_lines_set_or_none(line: int, op: str) -> None:
    assert found("root", op, (line, "reduce")) is None
