"""Two ranks' tests beside each other, against a plain search for the cheapest alignment."""

from __future__ import annotations

import random
import time
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hangdoc.diagnosis.execution.alignment import Column, Step, align

STEPS = st.lists(st.builds(Step, st.sampled_from("abcd"), st.sampled_from("TF")), max_size=14)


def steps(text: str) -> list[Step]:
    """'lT iF' → the loop's head came out true, the `if` false."""
    return [Step(each[:-1], each[-1]) for each in text.split()]


def shown(mine: list[Step], theirs: list[Step]) -> list[tuple[str, str]]:
    def of(side: list[Step], at: int | None) -> str:
        return "" if at is None else f"{side[at].place}{side[at].value}"

    return [(of(mine, one), of(theirs, other)) for one, other in align(mine, theirs)]


def cost(mine: list[Step], theirs: list[Step], columns: tuple[Column, ...]) -> int:
    return sum(a is None or b is None or mine[a] != theirs[b] for a, b in columns)


def cheapest(mine: list[Step], theirs: list[Step]) -> int:
    """By trying every alignment."""

    @cache
    def found(i: int, j: int) -> int:
        left = [1 + found(i + 1, j)] if i < len(mine) else []
        left += [1 + found(i, j + 1)] if j < len(theirs) else []
        if i < len(mine) and j < len(theirs) and mine[i].place == theirs[j].place:
            left.append((mine[i].value != theirs[j].value) + found(i + 1, j + 1))
        return min(left, default=0)

    return found(0, 0)


@given(STEPS, STEPS)
def test_every_step_is_there_once_in_order_and_only_like_places_pair(mine: list[Step], theirs: list[Step]) -> None:
    columns = align(mine, theirs)
    assert [a for a, _ in columns if a is not None] == list(range(len(mine)))
    assert [b for _, b in columns if b is not None] == list(range(len(theirs)))
    assert all(mine[a].place == theirs[b].place for a, b in columns if a is not None and b is not None)
    assert all(column != (None, None) for column in columns)


@given(STEPS, STEPS)
def test_it_costs_what_the_cheapest_does_and_more_only_where_rounds_stay_whole(
    mine: list[Step], theirs: list[Step]
) -> None:
    found = cost(mine, theirs, align(mine, theirs))
    if any(len({step.place for step in side}) < len(side) for side in (mine, theirs)):
        assert found >= cheapest(mine, theirs)
    else:
        assert found == cheapest(mine, theirs)


@given(STEPS, STEPS)
def test_both_sides_are_treated_alike(mine: list[Step], theirs: list[Step]) -> None:
    there, back = align(mine, theirs), align(theirs, mine)
    distinct = all(len({step.place for step in side}) == len(side) for side in (mine, theirs))
    if distinct:
        assert cost(mine, theirs, there) == cost(theirs, mine, back)


@given(STEPS, st.integers(0, 4), st.integers(0, 4))
def test_a_round_too_many_stays_one_round(inner: list[Step], some: int, more: int) -> None:
    """The loop's body has no loop of its own here."""
    body = [Step("l", "T"), *{step.place: step for step in inner}.values()]
    mine, theirs = ([*(body * rounds), Step("l", "F")] for rounds in (some, some + more))
    columns = align(mine, theirs)
    assert cost(mine, theirs, columns) == more * len(body)
    assert columns[: some * len(body)] == tuple(Column(n, n) for n in range(some * len(body)))
    assert columns[-1] == (len(mine) - 1, len(theirs) - 1)


@pytest.mark.parametrize(
    ("mine", "theirs", "expected"),
    [
        (
            "lT iF lT iF lF",
            "lT iF lT iT",
            [("lT", "lT"), ("iF", "iF"), ("lT", "lT"), ("iF", "iT"), ("lF", "")],
        ),
        # A round that was cut short, and whole ones after it.
        (
            "lT aF bF lT aF bT lT aF bF",
            "lT aF bF lT aT lT aF bF",
            [
                *(("lT", "lT"), ("aF", "aF"), ("bF", "bF"), ("lT", "lT"), ("aF", "aT"), ("bT", "")),
                *(("lT", "lT"), ("aF", "aF"), ("bF", "bF")),
            ],
        ),
        # A test of one rank alone (`if rank == 0` has more under it) shifts nothing.
        ("rT sF lT iF lF", "rF lT iF lF", [("rT", "rF"), ("sF", ""), ("lT", "lT"), ("iF", "iF"), ("lF", "lF")]),
        ("", "aT", [("", "aT")]),
        # Left half way, a loop has no end: what comes after it belongs together all the same.
        ("lT lT xF", "lT lT lF xT", [("lT", "lT"), ("lT", "lT"), ("", "lF"), ("xF", "xT")]),
    ],
)
def test_examples(mine: str, theirs: str, expected: list[tuple[str, str]]) -> None:
    assert shown(steps(mine), steps(theirs)) == expected


@pytest.mark.parametrize("places", [1, 7, 40, 1000])
def test_long_sides_take_a_bounded_time(places: int) -> None:
    chance = random.Random(places)
    mine, theirs = ([Step(chance.randrange(places), chance.choice("TF")) for _ in range(5000)] for _ in range(2))
    begun = time.process_time()
    assert len(align(mine, theirs)) <= 2400
    assert time.process_time() - begun < 20
