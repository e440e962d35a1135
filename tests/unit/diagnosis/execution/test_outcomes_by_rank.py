"""Predicate × rank: which outcomes were had and never had, by each source, and where sources contradict each other."""

from __future__ import annotations

import ast
import textwrap

from hangdoc.diagnosis.execution.table import Difference, Table
from hangdoc.diagnosis.program.items import Predicate
from hangdoc.diagnosis.program.program import Program
from hangdoc.diagnosis.source.guards import guards
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

    def serve(self):
        while True:
            request = receive()
            if not request:
                continue
            answer(request)
            try:
                flush()
            except OSError:
                self.lost += 1
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
    codes = {r: (RanCode(FILE, "", 1, called=True, ran=ran, idle=idle),) for r, (ran, idle) in counted.items()}
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


def test_what_runs_again_after_an_outcome_need_not_have_had_it() -> None:
    """The first round of `while True:` comes before each outcome in it; a `continue` goes past the rest of a round."""
    empty = test_at(14)
    found = table({0: ((13,), (16,)), 1: ((13, 16), ())})
    assert [found.had(empty, "False", rank)[0] for rank in (0, 1)] == [False, True]
    assert [found.had(empty, "True", rank)[0] for rank in (0, 1)] == [None, None]


def test_what_a_guard_asks() -> None:
    tree = ast.parse(CODE)
    found = table({})
    asked = {guard.line: found.choice(FILE, guard) for line in (3, 5, 9, 18) for guard in guards(tree, line)}
    told = {line: (each.predicates[0].line, each.under, each.past) for line, each in asked.items() if each is not None}
    assert told == {
        2: (2, "False", "True"),
        8: (8, "round", ""),
        14: (14, "False", "True"),
        17: (19, "ended", "raised"),
    }


def test_rounds_that_began_before_the_function_was_warm_are_told_apart_from_never() -> None:
    code = (RanCode(FILE, "step", 1, called=True, ran=(2, 5), idle=(3,), since_warm=True),)
    found = Table(Sources(()), PROGRAM, {0: Process(0, 1, "rank", code=code)}, {})
    assert found.had(BAD, "True", 0) == (None, "")
    assert found.had(BAD, "True", 0, lately=True) == (False, "counters")
