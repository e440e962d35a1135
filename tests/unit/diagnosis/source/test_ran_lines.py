"""Which ranks have run what no other has."""

from __future__ import annotations

from hangdoc.diagnosis.source.ran import Ran
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.model.ran import RanCode

FILE = "/job/train.py"


def test_the_ranks_that_have_each_run_a_line_of_their_own() -> None:
    lines = {0: (3, 4), 1: (3, 5), 2: (3,), 3: (3,)}
    ran = Ran(Sources(()), {rank: [RanCode(FILE, "step", 1, called=True, ran=each)] for rank, each in lines.items()})
    assert ran.ran_what_no_other_has(range(4)) == (0, 1)
    assert ran.ran_what_no_other_has((1, 2)) == (1,)


def test_a_function_that_all_ranks_but_one_have_called() -> None:
    codes = {
        0: [RanCode(FILE, "renew", 1, called=True), RanCode(FILE, "step", 5, called=True)],
        1: [RanCode(FILE, "renew", 1, called=False), RanCode(FILE, "step", 5, called=True)],
        2: [RanCode(FILE, "renew", 1, called=True), RanCode(FILE, "step", 5, called=True)],
    }
    ran = Ran(Sources(()), codes)
    assert list(ran.called_alone((0, 2), (1,))) == [(FILE, 1)]
    assert list(ran.called_alone((1,), (0, 2))) == []
    assert list(ran.called_alone((0,), (1, 2))) == []
