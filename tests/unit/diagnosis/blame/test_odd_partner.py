"""The rank whose choices of partners are those that do not agree with the others'."""

from __future__ import annotations

import pytest

from hangdoc.diagnosis.blame.odd_partner import odd_one

ALIKE = {0: 1, 1: 0, 2: 3, 3: 2}


@pytest.mark.parametrize(
    ("rounds", "odd"),
    [
        ([ALIKE], None),
        ([ALIKE, {0: 3, 1: 2, 2: 3, 3: 0}], 2),  # 1 chose 2, and 2 chose 3, which chose 0
        ([ALIKE, {0: 1, 1: 0, 2: 0, 3: 2}], 2),  # 2 chose 0, which had chosen 1
        ([ALIKE, {1: 2, 2: 3}], None),  # it is either of them
        ([ALIKE, {1: 2, 2: 3}, {0: 3, 2: 0}], 2),  # the next round tells
        ([{0: 1, 1: 2, 2: 0}], None),
        ([{0: 3, 1: 3, 2: 3}], None),  # all three chose one
        ([{0: 3, 1: 3, 2: 3, 3: 1}], None),
    ],
)
def test_the_rank_that_all_crossed_choices_share_is_odd(rounds: list[dict[int, int]], odd: int | None) -> None:
    assert odd_one(rounds) == odd


def test_of_thousands_of_ranks_no_two_are_compared() -> None:
    rounds = [{rank: rank ^ 1 for rank in range(4000)}] * 50
    assert odd_one([*rounds, {**rounds[0], 2: 0}]) == 2
