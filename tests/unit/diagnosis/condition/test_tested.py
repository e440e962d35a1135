"""What the interpreters' counters say of a candidate condition: seen, fitting, unknown or refuted."""

from __future__ import annotations

import ast
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from hangdoc.diagnosis.condition.branch_point import branch_point
from hangdoc.diagnosis.condition.tested import FITS, REFUTED, SEEN, UNKNOWN, as_recorded, decided
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.execution.parting import Seen
from hangdoc.diagnosis.execution.table import Table
from hangdoc.diagnosis.program.program import Program
from hangdoc.diagnosis.source.guards import Guard, guards
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.values import Values
from hangdoc.model.process import Frame, Process
from hangdoc.model.ran import RanCode
from hangdoc.model.snapshot import JobSnapshot, SourceText

FILE = "/job/train.py"
TEXT = """\
def load(self, path):
    if self.closed:
        self.late += 1
        return None
    rows = read(path)
    if not rows:
        self.empty += 1
        return None
    try:
        check(rows)
    except ValueError:
        self.bad += 1
        return None
    share(rows)
"""
SOURCE = (SourceText(FILE, "load", 1, TEXT),)
SOURCES = Sources(SOURCE)
EVERY = {2, 3, 5, 6, 7, 10, 11, 12, 14}
TO_THE_END = {2, 5, 6, 10, 14}


def ran(**lines: set[int]) -> Table:
    """What has run, by rank: r0={2, 5}."""
    codes = {
        int(rank[1:]): (RanCode(FILE, "load", 1, bool(some), tuple(sorted(some)), tuple(sorted(EVERY - some))),)
        for rank, some in lines.items()
    }
    return table(codes)


def table(codes: dict[int, tuple[RanCode, ...]]) -> Table:
    processes = {rank: Process(rank, 1, "rank", code=code) for rank, code in codes.items()}
    return Table(SOURCES, Program(SOURCE), processes, {})


def guard(line: int) -> Guard:
    return next(each for each in guards(ast.parse(TEXT), 14) if each.line == line)


@pytest.mark.parametrize(
    ("culprit", "line", "expected"),
    [
        ({2, 5, 6, 7}, 6, SEEN),
        ({2, 5, 6, 7}, 2, REFUTED),
        ({2, 5, 6, 7}, 11, REFUTED),
        ({2, 5, 6, 10, 11, 12}, 11, SEEN),
        ({2, 5, 6, 10, 11, 12}, 6, REFUTED),
        (TO_THE_END | {7}, 6, SEEN),
    ],
    ids=["taken", "not taken", "never come to", "caught", "gone past", "taken in one round"],
)
def test_what_the_culprit_has_run_tells_where_it_left(culprit: set[int], line: int, expected: int) -> None:
    assert decided(ran(r0=TO_THE_END, r1=culprit), FILE, guard(line), under=(0,), others=(1,)) == expected


def test_what_both_sides_have_done_in_some_round_says_nothing() -> None:
    both = TO_THE_END | {7}
    assert decided(ran(r0=both, r1=both), FILE, guard(6), under=(0,), others=(1,)) == UNKNOWN


def test_a_test_that_was_never_passed_fits() -> None:
    codes = {
        0: (RanCode(FILE, "load", 1, True, (2, 5, 6, 10), (14,)),),
        1: (RanCode(FILE, "load", 1, True, (2, 5, 6), (10, 14)),),
    }
    found = decided(table(codes), FILE, guard(6), under=(0,), others=(1,))
    assert found == FITS


def test_lines_that_may_have_run_in_the_first_rounds_refute_nothing() -> None:
    idle = tuple(sorted(EVERY - {2, 5, 6}))
    codes = {1: (RanCode(FILE, "load", 1, True, (2, 5, 6), idle, since_warm=True),)}
    assert decided(table(codes), FILE, guard(2), under=(0,), others=(1,)) == UNKNOWN


def test_a_function_that_was_never_called_has_run_none_of_its_lines() -> None:
    known = table({0: (RanCode(FILE, "load", 1, False),), 1: (RanCode(FILE, "load", 1, True, (2, 5)),)})
    assert known.never_called((0,), FILE, 5)
    assert known.ran(0, FILE, 8) is False
    assert known.ran(1, FILE, 8) is None
    assert list(known.ran_alone((1,), (0,))) == [(FILE, 2), (FILE, 5)]
    assert list(known.ran_alone((1,), (2,))) == []


ENGINE = "/venv/lib/python3.13/site-packages/ignite/engine/engine.py"
LOOP = """\
def run(self):
    try:
        while not self.done():
            self.step()
            self.check()
    except Terminate:
        self.fire()

def check(self):
    if self.should_terminate:
        raise Terminate
    self.note()
"""


@pytest.mark.parametrize(("line", "left"), [(12, False)])
def test_what_a_library_raises_and_catches_for_itself_is_its_way_out_of_the_loop(line: int, left: bool) -> None:
    """Side 0 came to ``line`` under the test; side 1 is in the loop."""
    sources = Sources((SourceText(ENGINE, "<module>", 1, LOOP),))
    tree = ast.parse(LOOP)
    (loop,) = (each for each in guards(tree, 4) if each.kind == "loop")
    (test,) = guards(tree, 11)
    point = replace(branch_point(loop, Frame(ENGINE, 4, "run"), 1, 3.0), uneven=True, of_library=True)
    case = cast(Case, SimpleNamespace(sources=sources, values=Values(JobSnapshot(taken=1.0, mode="watch"))))
    first, *_ = as_recorded(case, Seen(test, Frame(ENGINE, line, "check"), 1, 0), [point], ((0,), (1,)))
    assert first.recorded
    assert first.guard == (loop if left else test)
    assert first.left_at == (replace(test, taken=False) if left else None)
