"""A call of which both arms of a condition make their part is not left out by who takes the other arm."""

from __future__ import annotations

from made_calls import Made, made_calls

from hangdoc import api
from hangdoc.model.diagnosis import Diagnosis

BOTH = """
def run(rank, policy):
    for step in range(9):
        push(policy)
        if rank == 0:
            dist.gather(x, into)
        else:
            dist.gather(x)

def push(policy):
    for bucket in policy.buckets:
        dist.broadcast(bucket, 0)
"""
ONE = BOTH.replace("        else:\n            dist.gather(x)\n", "        x = 1\n        dist.gather(x)\n")
PUSH: Made = ("broadcast", [(12, "push"), (4, "run")])
FIRST: Made = ("gather", [(6, "run")])
SECOND: Made = ("gather", [(8, "run")])


def diagnosed(text: str, round_: tuple[Made, ...], of_others: tuple[Made, ...]) -> Diagnosis:
    """Rank 0 has come to its gather with one broadcast fewer than in the round before."""
    mine = [PUSH, PUSH, *round_, PUSH, FIRST]
    theirs = [PUSH, PUSH, *of_others, PUSH, PUSH]
    return api.diagnose(made_calls(text, {0: mine, 1: theirs, 2: theirs}))


def test_the_broadcast_that_is_missing_is_told_and_not_the_role() -> None:
    found = diagnosed(BOTH, (FIRST,), (SECOND,))
    assert found.culprits == (0,)
    assert "skips the broadcast" in found.verdict
    assert "rank == 0" not in f"{found.why} {found.fix}" and "gather at" not in found.fix


def test_an_arm_with_a_call_that_nobody_else_makes_decides() -> None:
    found = diagnosed(ONE, (FIRST,), (SECOND,))  # which met a call after the arms
    assert found.culprits == (0,)
    assert "rank == 0" in found.why
