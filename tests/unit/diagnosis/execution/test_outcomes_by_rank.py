"""Predicate × rank: which outcomes were had and never had, by each source, and where sources contradict each other."""

from __future__ import annotations

import textwrap

from hangdoc.diagnosis.execution.table import Difference, Table
from hangdoc.diagnosis.program.items import Predicate
from hangdoc.diagnosis.program.program import Program
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.model.branches import BranchCounts
from hangdoc.model.process import Frame, Process
from hangdoc.model.ran import RanCode
from hangdoc.model.snapshot import Module

FILE = "/job/train.py"
CODE = textwrap.dedent(
    """
    def step(self, loss):
        if not isfinite(loss):
            self.bad += 1
            return
        if loss > self.limit:
            pass
            self.high += 1
        for part in self.parts:
            reduce(part)
    """
).lstrip("\n")
PROGRAM = Program((), [Module(FILE, "sha256:0", CODE)])
Counted = dict[int, tuple[tuple[int, ...], tuple[int, ...]]]


def test_at(line: int) -> Predicate:
    function = PROGRAM.function(FILE, line)
    assert function is not None
    return next(each for each in function.predicates if each.line == line)


test_at.__test__ = False  # type: ignore[attr-defined]
BAD, HIGH, PARTS = test_at(2), test_at(5), test_at(8)


def table(counted: Counted, branches: tuple[BranchCounts, ...] = (), at: dict[int, int] | None = None) -> Table:
    """``counted``: rank → (lines that ran, idle lines). ``at``: rank → the line that its thread is at."""
    codes = {r: (RanCode(FILE, "step", 1, called=True, ran=ran, idle=idle),) for r, (ran, idle) in counted.items()}
    processes = {rank: Process(rank, 1, "rank", code=codes[rank], branches=branches) for rank in counted}
    stacks = {rank: (Frame(FILE, line, "step"),) for rank, line in (at or {}).items()}
    return Table(Sources(()), PROGRAM, processes, stacks)


def test_one_side_alone_ran_the_line_under_a_test() -> None:
    found = table({0: ((2, 5), (3,)), 1: ((2, 3), (5,)), 2: ((2, 5), (3,))})
    assert [found.had(BAD, "True", rank) for rank in (0, 1)] == [(False, "counters"), (True, "counters")]
    assert Difference(0, "True", "counters") in found.differs(BAD, ("True", "False"), (1,), (0, 2))
    assert Difference(1, "True", "counters") in found.differs(BAD, ("True", "False"), (0, 2), (1,))
    assert found.differs(BAD, ("True", "False"), (0,), (2,)) == []


def test_a_line_without_a_counter_in_the_arm_does_not_hide_that_it_was_never_entered() -> None:
    found = table({0: ((5,), (7,))})  # line 6 is a `pass`, line 4 a bare `return`
    assert found.had(HIGH, "True", 0) == (False, "counters")
    assert found.all_had(HIGH, "True", (0,)) is False


def test_the_stack_shows_an_outcome_and_denies_none() -> None:
    found = table({0: ((), ())}, at={0: 9})
    assert found.had(PARTS, "round", 0) == (True, "stacks")
    assert found.had(PARTS, "ended", 0) == (None, "")


def test_sources_that_contradict_each_other_leave_it_open() -> None:
    at = (HIGH.line, HIGH.column, HIGH.end_line, HIGH.end_column)
    never = (BranchCounts(FILE, "step", *at, "FT", (4, 0), "FFFF", True),)
    assert table({0: ((5,), (7,))}, never).had(HIGH, "True", 0)[0] is False
    assert table({0: ((5, 7), ())}, never).had(HIGH, "True", 0) == (None, "")


def test_sides_that_do_not_agree_in_themselves_differ_in_nothing() -> None:
    found = table({0: ((3,), ()), 1: ((3,), ()), 2: ((2,), (3,))})
    assert found.differs(BAD, ("True", "False"), (1,), (0, 2)) == []


def test_never_asked_needs_a_counter_of_each_rank() -> None:
    found = table({0: ((2,), (5,)), 1: ((2, 5), ())})
    assert found.never_asked(HIGH, (0,))
    assert not found.never_asked(HIGH, (0, 1))
    assert not found.never_asked(HIGH, (0, 7))
    assert not found.never_asked(HIGH, ())
