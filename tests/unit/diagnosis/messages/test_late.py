"""A message that is late, or left out of one round, by what its rank always did."""

from __future__ import annotations

import pytest

from hangdoc.diagnosis.messages.late import _MESSAGE, _is_left_out_once

S = _MESSAGE


@pytest.mark.parametrize(
    ("steps", "left_out"),
    [
        (["m", S, "c", "m", S, "c", "m", S, "c", "m", "c"], True),
        (["m", S, "c", "m", S, "c", "m", S, "c", "m", S, "c"], False),
        (["m", "c", S, "m", "c", S, "m", "c", S, "m", "c"], False),  # it comes after the call
        (["m", "c", S, "m", "c", S, "m", "c", "m", "c", S, "m", "c"], True),
        (["m", S, "c", "m", "c"], False),  # too few rounds to know its way
        (["m", S, "c", "m", "c", "m", S, "c", "m", "c", "m", "c"], False),  # it leaves it out now and then
        (["m", S, S, "c", "m", S, S, "c", "m", S, S, "c", "m", S, "c"], True),
    ],
)
def test_a_message_was_left_out_if_one_round_has_one_less_than_all_others(steps: list[str], left_out: bool) -> None:
    assert _is_left_out_once(steps, "m", "c") is left_out
