"""Calls of new_group under one number, apart by the group that each makes."""

from __future__ import annotations

from hangdoc.diagnosis.blame.group_creation import sides_of
from hangdoc.diagnosis.calls.history import Token

KEY = ("new_group", (0, 1, 2, 3))


def _makes(rank: int, *members: int, pending: bool = False, line: int = 10) -> Token:
    site = (("train.py", line, "setup"),) if line else ()
    return Token(rank, KEY, 3, "new_group", site, (members,), (), pending, -1, 0, ())


def _ranks(sides: list[list[Token]]) -> list[list[int]]:
    return [[token.rank for token in side] for side in sides]


def test_a_rank_past_a_number_made_what_the_others_did_who_do_not_wait() -> None:
    waits, made, past = _makes(0, 0, 1, pending=True), _makes(2, 2, 3), _makes(1, line=0)
    assert _ranks(sides_of([waits, past, made])) == [[0], [2, 1]]


def test_what_a_rank_made_that_is_past_a_number_is_not_known_where_nobody_waits_or_all_do() -> None:
    assert _ranks(sides_of([_makes(1, line=0), _makes(3, 0, 3)])) == [[3], [1]]
    assert _ranks(sides_of([_makes(1, line=0), _makes(0, 0, 1, pending=True)])) == [[0], [1]]
