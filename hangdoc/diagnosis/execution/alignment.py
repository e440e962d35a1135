"""Two ranks' tests beside each other: a Needleman-Wunsch alignment, rounds of loops by rounds.

Example: rank 0 came by `for` T, `if` F, `for` T, `if` F and rank 1 by `for` T, `if` F, `for` T, `if` T. The first three
pair, then the `if` came out differently: that is the first difference.

A place that comes more than once is the head of rounds. Whole rounds are aligned with whole rounds, and inside of two
that pair their tests, so that a round too many stays one round and does not spread over those after it.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

_MOST = 120
"""Tests of a side behind those with which both begin; chosen by hand: a snapshot holds some 100 of a rank."""
_DEEPEST = 6
"""Loops within each other; chosen by hand. Those further inside are aligned test by test."""


class Step(NamedTuple):
    """A test, at its place, with its value."""

    place: Hashable
    value: str


class Column(NamedTuple):
    """Places of two steps that belong together, each in its sequence; None: the other side has none there."""

    mine: int | None
    theirs: int | None


def align(mine: Sequence[Step], theirs: Sequence[Step]) -> tuple[Column, ...]:
    """Every step of both sides in order, those that belong together in one column; steps at unlike places never do.

    Of equally good alignments the one that pairs what comes first. Of sides that go on for very long, the beginning.
    """
    same = _alike(mine, theirs)
    ends = (min(len(side), same + _MOST) for side in (mine, theirs))
    rest = _aligned(_Sides(mine, theirs), *(range(same, end) for end in ends), depth=0)[1]
    return (*(Column(at, at) for at in range(same)), *rest)


def first_difference(mine: Sequence[Step], theirs: Sequence[Step], columns: Sequence[Column]) -> int | None:
    """The number of the first column whose two steps are not the same; None where there is none."""
    for number, (one, other) in enumerate(columns):
        if one is None or other is None or mine[one] != theirs[other]:
            return number
    return None


class _Sides(NamedTuple):
    mine: Sequence[Step]
    theirs: Sequence[Step]


_Found = tuple[int, list[Column]]
"""(how many steps have no partner of the same value, the columns)"""


def _alike(mine: Sequence[Step], theirs: Sequence[Step]) -> int:
    """With how many equal steps both begin."""
    return next(
        (at for at, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b), min(len(mine), len(theirs))
    )


def _aligned(sides: _Sides, mine: range, theirs: range, *, depth: int) -> _Found:
    head = _head(sides, mine, theirs) if depth < _DEEPEST else None
    rounds = [
        _rounds(side, part, head) if head is not None else [range(at, at + 1) for at in part]
        for side, part in zip(sides, (mine, theirs), strict=True)
    ]
    known: dict[tuple[int, int], _Found | None] = {}

    def pair(one: int, other: int) -> _Found | None:
        if (one, other) not in known:
            a, b = rounds[0][one], rounds[1][other]
            known[one, other] = _aligned(sides, a, b, depth=depth + 1) if head is not None else _test(sides, a, b)
        return known[one, other]

    columns: list[Column] = []
    cost, steps = _needleman_wunsch(rounds[0], rounds[1], pair)
    for one, other in steps:
        found = pair(one, other) if one is not None and other is not None else None
        if found is not None:
            columns += found[1]
        elif one is not None:
            columns += (Column(at, None) for at in rounds[0][one])
        elif other is not None:
            columns += (Column(None, at) for at in rounds[1][other])
    return cost, columns


def _test(sides: _Sides, one: range, other: range) -> _Found | None:
    """Two single steps; None where they are at unlike places."""
    a, b = sides.mine[one.start], sides.theirs[other.start]
    return (int(a.value != b.value), [Column(one.start, other.start)]) if a.place == b.place else None


def _head(sides: _Sides, mine: range, theirs: range) -> Hashable | None:
    """The first place that comes more than once on a side."""
    for side, part in zip(sides, (mine, theirs), strict=True):
        often = Counter(side[at].place for at in part)
        found = next((side[at].place for at in part if often[side[at].place] > 1), None)
        if found is not None:
            return found
    return None


def _rounds(side: Sequence[Step], part: range, head: Hashable) -> list[range]:
    """``part`` cut in front of each step at ``head``."""
    starts = [at for at in part if side[at].place == head or at == part.start]
    return [range(start, end) for start, end in itertools.pairwise([*starts, part.stop])]


def _needleman_wunsch(
    mine: Sequence[range], theirs: Sequence[range], pair: Callable[[int, int], _Found | None]
) -> tuple[int, list[tuple[int | None, int | None]]]:
    """(cost, steps) of the cheapest way through both: to leave one out costs its length, to pair two what ``pair``
    says."""
    rows, width = len(mine), len(theirs)
    cost = [[0] * (width + 1) for _ in range(rows + 1)]  # from here to the end

    def ways(i: int, j: int) -> list[tuple[int, int, int]]:
        """(cost, next i, next j), what pairs before what does not."""
        both = pair(i, j) if i < rows and j < width else None
        found = [(cost[i + 1][j + 1] + both[0], i + 1, j + 1)] if both is not None else []
        found += [(cost[i + 1][j] + len(mine[i]), i + 1, j)] if i < rows else []
        return [*found, *([(cost[i][j + 1] + len(theirs[j]), i, j + 1)] if j < width else [])]

    for i in range(rows, -1, -1):
        for j in range(width, -1, -1):
            cost[i][j] = min((way[0] for way in ways(i, j)), default=0)
    steps: list[tuple[int | None, int | None]] = []
    i = j = 0
    while i < rows or j < width:
        _, below, right = min(ways(i, j), key=lambda way: way[0])
        steps.append((i if below > i else None, j if right > j else None))
        i, j = below, right
    return cost[0][0], steps
