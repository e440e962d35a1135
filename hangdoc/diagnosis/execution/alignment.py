"""Two ranks' tests beside each other: a Needleman-Wunsch alignment, rounds of loops by rounds.

Example: rank 0 came by `for` T, `if` F, `for` T, `if` F and rank 1 by `for` T, `if` F, `for` T, `if` T. The first three
pair, then the `if` came out differently: that is the first difference.

A place that comes more than once is the head of rounds. Whole rounds are aligned with whole rounds, and inside of two
that pair their tests, so that a round too many stays one round and does not spread over those after it.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

_MOST = 1200
"""Steps of a side; chosen by hand: a snapshot holds up to a thousand of a rank."""
_MOST_CELLS = 400_000
"""Pairs of parts that are weighed: below a second. Sides that need more have little in common."""
_DEEPEST = 6
"""Loops within each other; chosen by hand. Those further inside are aligned test by test."""
_STEPS_APART, _ROUNDS_APART = 40, 6
"""Beyond the difference of their lengths, how far apart the places of a pair may be; chosen by hand."""
_NEVER = 1 << 30


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
    rounds = _Rounds()
    columns = rounds.aligned(tuple(mine[:_MOST]), tuple(theirs[:_MOST]))[1]
    found: list[Column] = []
    for alone, some in itertools.groupby(columns, key=lambda column: None in column):
        part = list(some)
        if alone:  # of a loop that one side left half way, what comes after belongs to different rounds
            one, other = ([at for column in part if (at := column[side]) is not None] for side in (0, 1))
            again = rounds.aligned(tuple(mine[at] for at in one), tuple(theirs[at] for at in other), _DEEPEST)[1]
            part = [Column(None if a is None else one[a], None if b is None else other[b]) for a, b in again]
        found += part
    return tuple(found)


_Found = tuple[int, list[Column]]
"""(how many steps have no partner of the same value, the columns)"""
_Part = tuple[Step, ...]


def _moved(columns: Iterable[Column], mine: int, theirs: int) -> Iterable[Column]:
    return (Column(None if a is None else a + mine, None if b is None else b + theirs) for a, b in columns)


class _Rounds:
    """Aligns parts of two sides. Rounds that are alike are aligned once."""

    def __init__(self) -> None:
        self._known: dict[tuple[_Part, _Part, int], _Found] = {}
        self._left = _MOST_CELLS

    def aligned(self, mine: _Part, theirs: _Part, depth: int = 0) -> _Found:
        """The cheapest columns of all steps of both."""
        found = self._known.get((mine, theirs, depth))
        if found is None:
            alike = mine == theirs
            found = (0, [Column(at, at) for at in range(len(mine))]) if alike else self._cheapest(mine, theirs, depth)
            self._known[mine, theirs, depth] = found
        return found

    def _cheapest(self, mine: _Part, theirs: _Part, depth: int) -> _Found:
        if not mine or not theirs:
            return len(mine) + len(theirs), [
                *(Column(at, None) for at in range(len(mine))),
                *(Column(None, at) for at in range(len(theirs))),
            ]
        head = _head((mine, theirs)) if depth < _DEEPEST else None
        rounds = [_rounds(side, head) if head is not None else [(step,) for step in side] for side in (mine, theirs)]
        cost, steps = self._needleman_wunsch(rounds[0], rounds[1], depth if head is not None else None)
        columns: list[Column] = []
        a = b = 0
        for one, other in steps:
            part = one or (), other or ()
            columns += _moved(self._pair(*part, depth if head is not None else None)[1], a, b)
            a, b = a + len(part[0]), b + len(part[1])
        return cost, columns

    def _pair(self, one: _Part, other: _Part, depth: int | None) -> _Found:
        """Two rounds, ``depth`` loops within each other; of None two steps at one place, or a step alone."""
        if depth is not None:
            return self.aligned(one, other, depth + 1) if one and other else self._cheapest(one, other, _DEEPEST)
        if one and other:
            return int(one[0].value != other[0].value), [Column(0, 0)]
        return 1, [Column(0, None) if one else Column(None, 0)]

    def _needleman_wunsch(
        self, mine: Sequence[_Part], theirs: Sequence[_Part], depth: int | None
    ) -> tuple[int, list[tuple[_Part | None, _Part | None]]]:
        """(cost, steps) of the cheapest way through both: to leave one out costs its length, to pair two what is unlike
        in them."""
        rows, width = len(mine), len(theirs)
        apart = abs(rows - width) + (_STEPS_APART if depth is None else _ROUNDS_APART)
        self._left -= rows * min(width, 2 * apart + 1)
        if self._left < 0:
            return sum(map(len, (*mine, *theirs))), [*((each, None) for each in mine), *((None, e) for e in theirs)]
        cost = [[_NEVER] * (width + 1) for _ in range(rows + 1)]  # from here to the end
        cost[rows][width] = 0
        for i in range(rows, -1, -1):
            here, below = cost[i], cost[i + 1] if i < rows else ()
            for j in range(min(width, i + apart), max(0, i - apart) - 1, -1):
                least = here[j]
                if i < rows and j < width and (both := self._both(mine[i], theirs[j], depth)) is not None:
                    least = min(least, below[j + 1] + both)
                if i < rows:
                    least = min(least, below[j] + len(mine[i]))
                if j < width:
                    least = min(least, here[j + 1] + len(theirs[j]))
                here[j] = least
        steps: list[tuple[_Part | None, _Part | None]] = []
        i = j = 0
        while i < rows or j < width:  # what pairs before what does not
            both = self._both(mine[i], theirs[j], depth) if i < rows and j < width else None
            if both is not None and cost[i][j] == cost[i + 1][j + 1] + both:
                steps.append((mine[i], theirs[j]))
                i, j = i + 1, j + 1
            elif i < rows and cost[i][j] == cost[i + 1][j] + len(mine[i]):
                steps.append((mine[i], None))
                i += 1
            else:
                steps.append((None, theirs[j]))
                j += 1
        return cost[0][0], steps

    def _both(self, one: _Part, other: _Part, depth: int | None) -> int | None:
        """What it costs to pair them; None where they are at unlike places."""
        if one == other:
            return 0
        if depth is None:
            return 1 if one[0].place == other[0].place else None
        return self.aligned(one, other, depth + 1)[0]


def _head(sides: Iterable[_Part]) -> Hashable | None:
    """The first place that comes more than once on a side."""
    for side in sides:
        often = Counter(step.place for step in side)
        found = next((step.place for step in side if often[step.place] > 1), None)
        if found is not None:
            return found
    return None


def _rounds(side: _Part, head: Hashable) -> list[_Part]:
    """``side`` cut in front of each step at ``head``."""
    starts = [at for at, step in enumerate(side) if step.place == head or at == 0]
    return [side[start:end] for start, end in itertools.pairwise([*starts, len(side)])]
