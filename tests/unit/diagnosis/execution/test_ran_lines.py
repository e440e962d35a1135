"""Which ranks have run what no other has."""

from __future__ import annotations

from hangdoc.diagnosis.execution.lines import Lines
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.model.process import Frame, Process
from hangdoc.model.ran import RanCode

FILE = "/job/train.py"


def lines_of(codes: dict[int, tuple[RanCode, ...]], at: dict[int, int] | None = None) -> Lines:
    """``at``: rank → the line that its thread is at."""
    processes = {rank: Process(rank, 1, "rank", code=code) for rank, code in codes.items()}
    return Lines(Sources(()), processes, {rank: (Frame(FILE, line, "step"),) for rank, line in (at or {}).items()})


def test_the_ranks_that_have_each_run_a_line_of_their_own() -> None:
    lines = {0: (3, 4), 1: (3, 5), 2: (3,), 3: (3,)}
    ran = lines_of({rank: (RanCode(FILE, "step", 1, called=True, ran=each),) for rank, each in lines.items()})
    assert ran.ran_what_no_other_has(range(4)) == (0, 1)
    assert ran.ran_what_no_other_has((1, 2)) == (1,)


def test_a_function_that_all_ranks_but_one_have_called() -> None:
    codes = {
        0: (RanCode(FILE, "renew", 1, called=True), RanCode(FILE, "step", 5, called=True)),
        1: (RanCode(FILE, "renew", 1, called=False), RanCode(FILE, "step", 5, called=True)),
        2: (RanCode(FILE, "renew", 1, called=True), RanCode(FILE, "step", 5, called=True)),
    }
    ran = lines_of(codes)
    assert list(ran.called_alone((0, 2), (1,))) == [(FILE, 1)]
    assert list(ran.called_alone((1,), (0, 2))) == []
    assert list(ran.called_alone((0,), (1, 2))) == []


def test_ranks_by_whether_they_have_run_a_line() -> None:
    step = {0: ((3, 4), ()), 1: ((3,), (4,)), 2: ((3,), ()), 3: ((3,), (4,))}
    codes = {r: (RanCode(FILE, "step", 1, True, ran, idle, since_warm=r == 3),) for r, (ran, idle) in step.items()}
    assert lines_of(codes).split(range(5), FILE, 4) == ((0,), (1,), (2, 3, 4))
    assert lines_of(codes).lately(3, FILE, 4) is False


def test_nothing_is_known_of_a_rank_that_is_at_a_line_which_it_never_ran() -> None:
    codes = {rank: (RanCode(FILE, "step", 1, called=True, ran=(3,), idle=(4,)),) for rank in (0, 1)}
    found = lines_of(codes, {0: 4, 1: 3})
    assert found.known((0, 1)) == (1,)
    assert found.split((0, 1), FILE, 3) == ((1,), (), (0,))
