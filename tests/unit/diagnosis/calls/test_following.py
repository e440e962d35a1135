"""What has always come with a call: the one right before it, and the others' that it has met."""

from __future__ import annotations

import pytest

from hangdoc.diagnosis.calls.following import always_follows, made_fewer, met_before
from hangdoc.diagnosis.calls.history import GroupHistory, Token


def tokens(rank: int, calls: str) -> list[Token]:
    """One call a letter, which is its line."""
    return [
        Token(rank, ("0", (0, 1)), n + 1, "all_reduce", (("train.py", ord(each), "run"),), None, (), False, n, n, ())
        for n, each in enumerate(calls)
    ]


@pytest.mark.parametrize(
    ("culprit", "other", "expected"),
    [
        ("AXAXX", "AXAXA", True),
        ("AXBAXBX", "AXBAXBA", True),
        # It always came after A, but A was made this time as well.
        ("AXAX", "AXAB", False),
        # It was made without A before.
        ("AXXAXX", "AXXAXA", False),
        ("AXAXX", "AXAXXA", False),
        # It was never made before.
        ("AABX", "AABA", False),
    ],
)
def test_call_that_always_follows(culprit: str, other: str, expected: bool) -> None:
    calls = {0: tokens(0, other), 1: tokens(1, culprit)}
    history = GroupHistory(("0", (0, 1)), (0, 1), "default_pg", calls)
    assert always_follows(history, calls[1][-1], calls[0][-1]) is expected


def test_the_calls_that_the_last_one_like_it_has_met() -> None:
    calls = {0: tokens(0, "AYAYA"), 1: tokens(1, "AXAXX")}
    history = GroupHistory(("0", (0, 1)), (0, 1), "default_pg", calls)
    assert [each.site[0][1] for each in met_before(history, calls[1][-1])] == [ord("Y")]
    assert met_before(history, calls[1][2]) == []  # those were made at one line
    assert met_before(history, calls[1][1]) == []  # there is none before it


@pytest.mark.parametrize(
    ("calls", "expected"), [("AAXAX", True), ("AAXAXAX", False), ("AXAAX", False), ("AX", False), ("AAXX", True)]
)
def test_fewer_than_before(calls: str, expected: bool) -> None:
    own = tokens(0, calls)
    assert made_fewer(own, own[-1], own[0]) is expected
