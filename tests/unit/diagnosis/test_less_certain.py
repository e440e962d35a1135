"""What is certain has a proof of each clause: a condition in a loop that the others have left, the order of a range, a
loop that an exception ended, what the output tells."""

from __future__ import annotations

import pytest
from helpers.made_calls import Made, made_calls

from hangdoc import api
from hangdoc.diagnosis.causes.finding import Finding
from hangdoc.diagnosis.causes.told_by_output import unknown_writer
from hangdoc.diagnosis.condition.elsewhere.written import WrittenUnder
from hangdoc.model.message import Condition
from hangdoc.model.snapshot import Written

REDUCED_BY_TYPE = """
def reduce(states, world):
    for kind in sorted(states):
        flat = pack(states[kind])
        if world.alone():
            continue
        all_reduce(flat)


def main():
    for step in range(5):
        reduce(collect(), WORLD)
        gather(step)
"""


def _reduced(times: int) -> list[Made]:
    return [("all_reduce", ((6, "reduce"), (11, "main")))] * times


def test_a_condition_of_a_loop_that_may_have_had_fewer_items_is_not_certain() -> None:
    """Two calls in each step, three in the last one of rank 2: the loop over the kinds had one more item there."""
    gathered: list[Made] = [("all_gather", ((12, "main"),))]
    before = [*_reduced(2), *gathered, *_reduced(2), *gathered]
    others = [*before, *_reduced(2), *gathered]
    found = api.diagnose(made_calls(REDUCED_BY_TYPE, {0: others, 1: others, 2: [*before, *_reduced(3)], 3: others}))
    assert (found.culprits, found.confidence) == ((2,), "likely")
    assert "or have no such item" in found.why
    assert "True on ranks 0, 1 and 3" not in found.why
    assert not [note for text in found.code for line in text.lines for note in line.notes if "True on" in note]


SAVED_IN_A_WINDOW = """
def main(first, window):
    for step in range(first, first + 50):
        update(step)
        if wants_save(step, window.used):
            save(step)


def update(step):
    all_reduce(step)


def save(step):
    barrier()


main(0, WINDOW)
"""
"""Line 4 is `if wants_save`."""


def test_the_items_of_a_range_have_one_order() -> None:
    """All saved at step 1; at step 3 rank 3 saves alone."""
    updated: Made = ("all_reduce", ((9, "update"), (3, "main"), (16, "<module>")))
    saved: Made = ("barrier", ((13, "save"), (5, "main"), (16, "<module>")))
    before = [updated, saved, updated]
    others = [*before, updated]
    found = api.diagnose(made_calls(SAVED_IN_A_WINDOW, {0: others, 1: others, 2: others, 3: [*before, saved]}))
    assert found.cause is not None
    assert (found.culprits, found.cause.code) == ((3,), "HD101")
    assert found.divergence is not None
    assert found.divergence.branch is not None
    assert found.divergence.branch.line == 4
    assert "another order" not in found.why


FELL_OUT = """
def epoch(model):
    for i in range(4):
        step(model)


def main(model):
    try:
        for e in range(3):
            epoch(model)
    except ValueError:
        log()
    finally:
        gather(1)


def step(model):
    all_reduce(model)
"""


@pytest.mark.xfail(strict=True, reason="told by a rule that is gone: a `finally` is as near as the handler")
def test_of_a_loop_that_an_exception_ended_the_handler_is_the_condition() -> None:
    round_: Made = ("all_reduce", ((17, "step"), (3, "epoch"), (9, "main")))
    others = [round_] * 7
    gone: list[Made] = [*[round_] * 6, ("all_gather", ((13, "main"),))]
    found = api.diagnose(made_calls(FELL_OUT, {0: others, 1: gone, 2: others}))
    assert found.cause is not None
    assert (found.culprits, found.cause.code) == ((1,), "HD103")
    assert found.divergence is not None
    assert found.divergence.branch is not None
    assert (found.divergence.branch.line, found.divergence.branch.condition) == (10, "except ValueError:")
    assert "for i in range" not in found.why


@pytest.mark.parametrize(("ranks", "cited", "doubted"), [((), False, True), ((2,), False, False), ((), True, False)])
def test_what_an_unknown_rank_wrote_is_no_proof(ranks: tuple[int, ...], cited: bool, doubted: bool) -> None:
    """One rank may have written it for all of them; a condition that is cited anyway has a proof of its own."""
    condition = Condition("if score_every:", "/job/train.py", 60)
    told = [WrittenUnder(condition, "main", True, Written("regime 3 is worst", (("/job/train.py", 61),)), ranks)]
    named = Finding("HD101", "", ["it was ", condition] if cited else "", "")
    assert bool(unknown_writer(told, named)) is doubted
