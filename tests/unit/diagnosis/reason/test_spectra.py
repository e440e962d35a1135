"""The one test that sets the sides apart by how often it came out, where no slice leads to it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from hangdoc.diagnosis.execution.table import Table
from hangdoc.diagnosis.program.program import Program
from hangdoc.diagnosis.reason.spectra import odd_in_spectra
from hangdoc.diagnosis.reason.starts import Sides
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.model.branches import BranchCounts
from hangdoc.model.process import Process
from hangdoc.model.snapshot import SourceText

FILE = "/home/me/train.py"
TEXT = """\
for batch in loader:
    if lesion.any():
        log()
    if rank == 0:
        show()
"""
SOURCE = (SourceText(FILE, "<module>", 1, TEXT),)
PLACES = {1: (13, 1, 19), 2: (7, 2, 19), 4: (7, 4, 16)}
USUAL = {1: (6, 0), 2: (6, 0)}
SIDES = Sides((1,), (0, 2))


def rank(counts: dict[int, tuple[int, int]], *, whole: bool = True) -> Process:
    tests = [
        BranchCounts(FILE, "<module>", line, *PLACES[line], "TF", both, "T" * min(16, sum(both)), whole)
        for line, both in counts.items()
    ]
    return Process(1, 0, "rank", branches=tuple(tests))


def told(*ranks: Process, sides: Sides = SIDES) -> int | None:
    """The line of what is told."""
    processes = dict(enumerate(ranks))
    program = Program(SOURCE)
    case: Any = SimpleNamespace(table=Table(Sources(SOURCE), program, processes, {}), program=program)
    found = odd_in_spectra(case, sides)
    return found.line if found is not None else None


def test_the_one_test_that_came_out_otherwise_is_told() -> None:
    assert told(rank(USUAL), rank({**USUAL, 2: (5, 1)}), rank(USUAL)) == 2
    assert told(rank({1: (4, 1)}), rank({1: (3, 1)}), rank({1: (4, 1)})) == 1  # a round less


def test_an_outcome_that_the_other_side_never_had_counts_before_how_often() -> None:
    more = {1: (7, 0), 2: (6, 1)}
    assert told(rank(USUAL), rank(more), rank(USUAL)) == 2
    assert told(rank({**USUAL, 1: (6, 1)}), rank({**more, 1: (7, 1)}), rank({**USUAL, 1: (6, 1)})) == 2


@pytest.mark.parametrize(
    "ranks",
    [
        (rank(USUAL), rank(USUAL), rank(USUAL)),  # nothing differs
        (rank(USUAL), rank({1: (5, 1), 2: (5, 1)}), rank(USUAL)),  # two do
        (rank(USUAL), rank({**USUAL, 2: (5, 1)}), rank({**USUAL, 2: (4, 2)})),  # the others do not agree
        (rank({4: (6, 0)}), rank({4: (0, 6)}), rank({4: (6, 0)})),  # a part that each plays
        (rank(USUAL), rank({**USUAL, 2: (5, 1)}, whole=False), rank(USUAL)),  # not all of it was recorded
        (rank(USUAL), rank({**USUAL, 2: (5, 1)}), Process(1, 0, "rank")),  # one was not recorded at all
    ],
)
def test_else_nothing_is_told(ranks: tuple[Process, ...]) -> None:
    assert told(*ranks) is None


def test_nobody_is_odd_without_others() -> None:
    assert told(rank({**USUAL, 2: (5, 1)}), sides=Sides((0,), ())) is None
