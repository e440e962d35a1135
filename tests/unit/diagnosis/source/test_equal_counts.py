"""Does a loop go over what the program writes out, and never changes?"""

from __future__ import annotations

import pytest
from made_calls import Made, made_calls

from hangdoc.diagnosis import diagnose

TWO_LISTS = """
class Evaluation:
    def __init__(self, rank):
        if rank < 3:
            self.heads = ["loss", "accuracy"]
        else:
            self.heads = ["loss"]

    def run(self):
        for name in self.heads:
            value = self.compute(name)
            if value is not None:
                dist.all_reduce(value)
        dist.barrier()
"""


@pytest.mark.xfail(strict=True, reason="told by a rule that is gone: the likeliest reason is the nearest test")
def test_lists_of_two_lengths_do_not_let_the_condition_in_the_loop_decide() -> None:
    call: Made = ("all_reduce", [(12, "run"), (20, "main")])
    past: Made = ("barrier", [(13, "run"), (20, "main")])
    found = diagnose(made_calls(TWO_LISTS, {rank: [call, call if rank < 3 else past] for rank in range(4)}))
    assert found.cause is not None
    assert (found.cause.code, str(found.confidence)) == ("HD102", "likely")
    one = TWO_LISTS.replace('["loss"]', '["loss", "accuracy"]')
    found = diagnose(made_calls(one, {rank: [call, call if rank < 3 else past] for rank in range(4)}))
    assert found.cause is not None
    assert found.cause.code == "HD101"
