"""How tests/accuracy/who.py measures weights and judges them."""

from __future__ import annotations

import who
from who import Answer, Example

from hangdoc.model.kinds import Confidence

GUILTY, INNOCENT = frozenset({"telling", "common"}), frozenset({"common"})


def example(name: str, *, right: int = 0) -> Example:
    """Two suspects, of whom the first has what tells."""
    return Example(name, (((0,), GUILTY), ((1,), INNOCENT)), right)


def test_the_kind_that_tells_weighs_and_the_one_that_all_have_does_not() -> None:
    weights = who.measured([example(str(number)) for number in range(30)], ["common", "telling"])
    assert weights["telling"] > 2
    assert abs(weights["common"]) < 0.01
    found = who.answer(example("x"), weights)
    assert found.right
    assert 0.85 < found.share < 1
    assert not who.answer(example("y", right=1), weights).right
    assert not who.answer(example("z", right=-1), weights).right  # the culprits are no suspects


def test_a_program_is_not_judged_by_its_own_variants() -> None:
    variants = ("queue_left", "queue_left_attach", "watched_queue_left", "queue_left_stacks")
    assert len({example(name).part for name in variants}) == 1
    others = [example(f"program_{number}") for number in range(40)]
    assert len({each.part for each in others}) == who.PARTS
    found = who.left_out([example("queue_left", right=1), *others], ["telling"])
    assert not found["queue_left"].right  # it alone says that the other suspect was it
    assert found["program_3"].right


def test_answers_are_counted_by_their_confidence() -> None:
    answers = [Answer(True, 0.995), Answer(True, 0.9), Answer(False, 0.9), Answer(True, 0.5)]
    counted = {Confidence.CERTAIN: (1, 1), Confidence.LIKELY: (1, 2), Confidence.POSSIBLE: (1, 1)}
    assert who.calibration(answers) == counted
