"""Rounds that had fewer messages than any before, or none for longer than ever."""

from __future__ import annotations

import pytest

from hangdoc.diagnosis.condition.round_left_out import fewer_than_ever, longer_than_ever


@pytest.mark.parametrize(
    ("counts", "fewer"),
    [
        ([4, 4, 4, 2], True),
        ([4, 4, 2], False),  # of two rounds no one knows what is usual
        ([4, 3, 4, 2], False),
        ([4, 4, 4, 4], False),
        ([4, 4, 4, 0], False),  # that is a round without any
        ([], False),
    ],
)
def test_a_last_round_with_some_is_odd_where_all_others_had_equally_many(counts: list[int], *, fewer: bool) -> None:
    assert fewer_than_ever(counts) is fewer


@pytest.mark.parametrize(
    ("counts", "rounds"),
    [
        ([0, 1, 0, 1, 0, 1, 0, 0, 0], 3),
        ([0, 1, 0, 1, 0, 1, 0, 0], 2),  # the second round without one should have had it
        ([0, 1, 0, 1, 0, 1, 0], 0),  # the next one will
        ([0, 1, 0, 1, 0, 0, 0], 0),  # twice is no rule
        ([0, 0, 0], 0),
        ([], 0),
    ],
)
def test_rounds_since_the_last_message_count_where_there_never_were_so_many(counts: list[int], rounds: int) -> None:
    assert longer_than_ever(counts) == rounds
