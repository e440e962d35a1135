"""Who makes a call without the one that always came right before it has left that one out."""

from __future__ import annotations

import pytest

from hangdoc.diagnosis.calls.following import always_follows
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
