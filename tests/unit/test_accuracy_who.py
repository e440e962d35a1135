"""How tests/accuracy/who.py measures weights and judges them."""

from __future__ import annotations

import who
from who import Answer, Example

from hangdoc.model.kinds import Confidence

GUILTY, INNOCENT = frozenset({"telling", "common"}), frozenset({"common"})


def example(name: str, *, right: int = 0) -> Example:
    """Two suspects, of whom the first has what tells."""
    return Example(name, (((0,), GUILTY), ((1,), INNOCENT)), right)


def test_answers_are_counted_by_their_confidence() -> None:
    answers = [Answer(True, 0.995), Answer(True, 0.9), Answer(False, 0.9), Answer(True, 0.5)]
    counted = {Confidence.CERTAIN: (1, 1), Confidence.LIKELY: (1, 2), Confidence.POSSIBLE: (1, 1)}
    assert who.calibration(answers) == counted
