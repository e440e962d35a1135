"""The condition by which one function chose between the states that two sides are in."""

from __future__ import annotations

import textwrap

import pytest

from hangdoc.diagnosis.condition.elsewhere.next_state import chosen_before
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.model.process import Frame, Stack
from hangdoc.model.snapshot import SourceText

FILE = "/job/machine.py"
TABLE = """
class Machine:
    def collect(self):
        all_reduce(self.count)
        {chooses}
    def update(self):
        all_reduce(self.grad)
        return Phase.COLLECT
    def run(self):
        table = {{Phase.COLLECT: self.collect, Phase.UPDATE: self.update}}
        while True:
            step = table[self.phase]
            self.phase = step()
"""


def chosen(program: str, *sides: Stack) -> tuple[int, str, int] | None:
    """(line, condition, the side that is under it) of what chose between the sides' states."""
    sources = Sources((SourceText(FILE, "<module>", 1, textwrap.dedent(program).lstrip("\n")),))
    point = chosen_before(sources, (sides[0], sides[1]))
    return (point.guard.line, point.guard.condition, point.guarded) if point is not None else None


def of_table(chooses: str) -> tuple[int, str, int] | None:
    run = Frame(FILE, 12, "run")
    return chosen(TABLE.format(chooses=chooses), (Frame(FILE, 3, "collect"), run), (Frame(FILE, 6, "update"), run))


@pytest.mark.parametrize(
    ("chooses", "found"),
    [
        ("return Phase.UPDATE if self.ready() else Phase.COLLECT", (4, "self.ready()", 1)),
        ("return Phase.COLLECT if self.short else Phase.UPDATE", (4, "self.short", 0)),
        ("return Phase.UPDATE if self.rank == 0 else Phase.COLLECT", None),
        ("return Phase.UPDATE", None),
    ],
)
def test_a_table_of_functions(chooses: str, found: tuple[int, str, int] | None) -> None:
    assert of_table(chooses) == found


ARMS = """
class Machine:
    def run(self):
        while True:
            {first}
                all_reduce(self.count)
                self.phase = Phase.COLLECT
                if len(self.rows) > 4:
                    self.phase = Phase.UPDATE
            {second}
                all_reduce(self.grad)
                self.phase = Phase.COLLECT
"""


def test_two_arms_of_a_chain() -> None:
    program = ARMS.format(first="if self.phase is Phase.COLLECT:", second="elif self.phase is Phase.UPDATE:")
    sides = ((Frame(FILE, 5, "run"),), (Frame(FILE, 10, "run"),))
    assert chosen(program, *sides) == (7, "if len(self.rows) > 4:", 1)


def test_two_cases() -> None:
    program = """
    def run(m):
        while True:
            match m.phase:
                case Phase.COLLECT:
                    all_reduce(m.count)
                    m.advance()
                case Phase.UPDATE:
                    all_reduce(m.grad)
    class M:
        def advance(self):
            if not self.buffer.ready:
                self.phase = Phase.COLLECT
            else:
                self.phase = Phase.UPDATE
    """
    assert chosen(program, (Frame(FILE, 5, "run"),), (Frame(FILE, 8, "run"),)) == (11, "if not self.buffer.ready:", 0)


def test_one_state_on_both_sides() -> None:
    run = Frame(FILE, 12, "run")
    program = TABLE.format(chooses="return Phase.UPDATE if self.ready else Phase.COLLECT")
    assert chosen(program, (Frame(FILE, 3, "collect"), run), (Frame(FILE, 4, "collect"), run)) is None
