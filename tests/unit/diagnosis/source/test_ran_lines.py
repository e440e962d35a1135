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
