"""Where the argument of a call comes from, and what chooses its group."""

from __future__ import annotations

import textwrap

import pytest

from hangdoc.diagnosis.condition.elsewhere.origin import set_at
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

    def elect(self, losses):
        if losses.stale:
            self.leader = self.rank

    def announce(self, x):
        dist.broadcast(x, src=self.leader)
        dist.broadcast(x, src=self.owner(x))
        self.adopt(self.best(x))
"""


def sources_of(program: str) -> Sources:
    return Sources((SourceText(FILE, "<module>", 1, textwrap.dedent(program).lstrip("\n")),))


def found(what: str, op: str, *lines: tuple[int, str]) -> list[tuple[int, str]]:
    stack = tuple(Frame(FILE, line, function) for line, function in lines)
    return [(each.line, each.source) for each in set_at(sources_of(PROGRAM), stack, op, what)]


def test_a_root_is_followed_to_the_caller_that_set_it() -> None:
    assert found("root", "broadcast", (8, "adopt"), (4, "run")) == [(3, "source = self.best(losses)")]


def test_a_tensor_that_the_function_itself_sets() -> None:
    assert found("arguments", "broadcast", (8, "adopt"), (4, "run")) == [(7, "for tensor in self.tensors:")]


def test_a_positional_root_of_a_loop() -> None:
    assert found("root", "reduce", (12, "reduce")) == [(11, "for root in (0, 1):")]


def test_what_several_lines_set_is_decided_by_their_conditions() -> None:
    assert found("root", "reduce", (16, "reduce")) == [(14, "if self.odd:")]


def test_an_attribute_is_decided_where_another_function_sets_it() -> None:
    assert found("root", "broadcast", (24, "announce")) == [(20, "if losses.stale:")]


def test_what_a_function_makes_for_the_call_itself() -> None:
    assert found("root", "broadcast", (25, "announce")) == [(25, "self.owner(x)")]
    assert found("root", "broadcast", (8, "adopt"), (26, "announce")) == [(26, "self.best(x)")]


@pytest.mark.parametrize("line, op", [(17, "broadcast"), (5, "broadcast")])
def test_a_constant_or_no_such_call(line: int, op: str) -> None:
    assert found("root", op, (line, "reduce")) == []
