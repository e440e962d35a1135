"""Runs of equal calls in a group: the order over all groups shows which of them is missing or too many."""

from __future__ import annotations

import random

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from simulator import Group, Op, Program, run, snapshot

from hangdoc.diagnosis import diagnose
from hangdoc.diagnosis.condition.divergence_point import passages

ROWS: tuple[Group, ...] = (("1", (0, 1)), ("2", (2, 3)))
COLUMNS: tuple[Group, ...] = (("3", (0, 2)), ("4", (1, 3)))
WORLD: Group = ("0", (0, 1, 2, 3))
ROW_LINE, COLUMN_LINE, LAST_LINE = 12, 31, 40


def mesh(steps: int, layers: int) -> Program:
    """Four ranks as a 2x2 mesh: in each step some calls in the row and one in the column, at the end a barrier."""
    calls: dict[int, tuple[Op, ...]] = {}
    for rank in range(4):
        row, column = (next(g for g in groups if rank in g[1]) for groups in (ROWS, COLUMNS))
        step = [Op(1, "all_reduce", row, (ROW_LINE,))] * layers + [Op(2, "all_reduce", column, (COLUMN_LINE,))]
        calls[rank] = (*(step * steps), Op(3, "barrier", WORLD, (LAST_LINE,)))
    return Program(4, ((WORLD,), ROWS, COLUMNS), calls, {})


@settings(deadline=None, database=None, max_examples=60)
@given(st.integers(3, 9), st.integers(1, 4), st.integers(0, 3), st.integers(0, 100), st.booleans(), st.integers(0, 9))
def test_the_step_of_a_call_that_is_missing_or_too_many(
    steps: int, layers: int, rank: int, at: int, extra: bool, seed: int
) -> None:
    program = mesh(steps, layers)
    step = 1 + at % (steps - 1)  # in the first one, the rank has no order of its own yet
    assume(step < steps - 1 or not extra)
    calls = list(program.calls[rank])
    place = step * (layers + 1)
    calls[place : place + 1] = [calls[place], calls[place]] if extra else []
    broken = {**program.calls, rank: tuple(calls)}
    job = snapshot(run(random.Random(seed), program, broken))
    found = diagnose(job)
    assert found.outcome == "hang"
    assert found.culprits == (rank,)
    assert found.confidence == "likely"
    assert found.divergence is not None
    numbers = [side.sequence for side in found.divergence.sides if side.frame and side.frame.line == ROW_LINE]
    first = step * layers + 1
    assert all(number is not None and first <= number <= first + layers for number in numbers)


@given(st.lists(st.sampled_from("abc"), max_size=40), st.sampled_from("abc"))
def test_passages_count_what_lies_between(sites: list[str], site: str) -> None:
    for order, start, count, usual in passages(sites, site):
        assert sites[order] != site
        assert start < 0 or sites[start] != site
        assert sites[start + 1 : order] == [site] * count
        assert usual >= 0
