"""A message that is late, or left out of one round, by what its rank always did."""

from __future__ import annotations

import pytest

from hangdoc.diagnosis.messages.late import _MESSAGE, _fewer_now, _is_left_out_once

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


@pytest.mark.parametrize(
    ("steps", "fewer"),
    [
        ([S, S, "c", S, S, "c", S, S, "c", S, "c"], 1),
        ([S, S, S, "c", S, S, S, "c", S, S, S, "c", "c"], 3),
        ([S, S, "c", S, S, "c", S, S, "c", S, S, "c"], 0),
        ([S, "c", S, S, "c", S, S, "c", S, "c"], 0),  # there were as few before
        ([S, S, "c", S, S, "c", S, "c"], 0),  # too few rounds to know its way
        (["c", S, S, "c", S, S, "c", S, S, "c", S, "c"], 0),  # the first call had none before it
    ],
)
def test_fewer_messages_came_before_a_call_than_before_each_other_one(steps: list[str], fewer: int) -> None:
    assert _fewer_now(steps, "c") == fewer
