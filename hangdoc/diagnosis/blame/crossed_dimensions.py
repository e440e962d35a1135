"""Ranks of a mesh that wait for each other in a circle, as some of them use two of its dimensions in another order.

No two ranks need to share both groups, so the groups are compared by dimension: what they are called in every row, and
how far apart their members are. Example: shards (0, 1) and (2, 3), replicas (0, 2) and (1, 3); ranks 0 and 3 are in the
shard's call, ranks 1 and 2 in the replica's, and each side has made one call less in the other's dimension.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from itertools import permutations

from hangdoc.diagnosis.calls.alignment import Alignment, Gap
from hangdoc.diagnosis.calls.history import GroupHistory, Token
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Diverged

Dimension = tuple[str, tuple[int, ...]]
"""What the groups of one dimension have in common: their description without numbers, and their members counted from
the first one."""
_LEAST_STUCK = 4
"""Ranks of the smallest mesh of two dimensions."""


@dataclass(frozen=True)
class CrossedDimensions(Diverged):
    """The culprits are in a call of one dimension of a mesh, the others in the call of another one that comes first on
    them. A call that the culprits left out looks the same by the calls alone."""


def crossed_dimensions(case: Case) -> list[Alignment]:
    """The repairs after which no rank is stuck: the fewer ranks make the others' call first. Both sides, where they are
    equally many; [] where the stuck ranks do not stand in two dimensions like that."""
    fronts = {rank: front for rank in sorted(case.graph.stuck) if (front := _front(case, rank)) is not None}
    if len(fronts) < _LEAST_STUCK:
        return []
    counts = {rank: _counts(case, rank) for rank in fronts}
    sides: dict[Dimension, list[int]] = {}
    for rank, front in fronts.items():
        sides.setdefault(_dimension(case, front), []).append(rank)
    for (one, mine), (other, theirs) in permutations(sides.items(), 2):
        if len(mine) > len(theirs) or not _differ_by_one(counts, mine, theirs, (one, other)):
            continue
        if not case.graph.dissolves(mine):
            continue
        issued = sum(counts[mine[0]][dimension] for dimension in (one, other))
        found = [_repair(fronts, mine, theirs, issued)]
        return [*found, _repair(fronts, theirs, mine, issued)] if len(mine) == len(theirs) else found
    return []


def _front(case: Case, rank: int) -> Token | None:
    """The one call that the rank waits in."""
    program = case.programs.get(rank)
    pending = program.pending if program is not None else []
    return pending[0] if len(pending) == 1 and len(pending[0].group[1]) > 1 else None


def _dimension(case: Case, call: Token) -> Dimension:
    group = case.programs[call.rank].groups.get(call.group[0])
    return dimension_of(group.description if group is not None else "", call.group[1])


def dimension_of(description: str, members: tuple[int, ...]) -> Dimension:
    """Example: 'mesh_shard4' of (4, 5, 6, 7) → ('mesh_shard', (0, 1, 2, 3))."""
    named = description if description != "undefined" else ""
    return re.sub(r"[\d_]+$", "", named), tuple(member - members[0] for member in members) if members else ()


def _counts(case: Case, rank: int) -> dict[Dimension, int]:
    """How many calls the rank has issued in its group of each dimension; without those that it has several of."""
    found: dict[Dimension, list[int]] = {}
    for history in case.histories:
        if rank in history.members and len(history.members) > 1:
            group = case.programs[rank].groups.get(history.key[0])
            dimension = dimension_of(group.description if group is not None else "", history.members)
            found.setdefault(dimension, []).append(history.issued(rank))
    return {dimension: issued[0] for dimension, issued in found.items() if len(issued) == 1}


def _differ_by_one(
    counts: dict[int, dict[Dimension, int]], mine: list[int], theirs: list[int], waits_in: tuple[Dimension, Dimension]
) -> bool:
    """True if each side has issued one call more than the other in the dimension that it waits in, and all ranks of a
    side as many."""
    own, other = waits_in
    here, there = (
        {(counts[rank].get(own, -1), counts[rank].get(other, -1)) for rank in ranks} for ranks in (mine, theirs)
    )
    if len(here) != 1 or len(there) != 1:
        return False
    (first, second), (issued, waited) = here.pop(), there.pop()
    return min(first, second, issued, waited) >= 0 and (first - issued, waited - second) == (1, 1)


def _repair(fronts: dict[int, Token], culprits: list[int], others: list[int], issued: int) -> Alignment:
    """The repair by which the culprits make the others' call before their own. ``issued``: the calls of each rank in
    both dimensions."""
    mine, theirs = fronts[culprits[0]], fronts[others[0]]
    members = tuple(sorted((*culprits, *others)))
    names = sorted({mine.group[0], theirs.group[0]})
    history = GroupHistory(("+".join(names), members), members, "the mesh")
    # One call of each rank: the numbers of its own group do not compare with those of another.
    history.tokens = {rank: [replace(fronts[rank], sequence=issued)] for rank in members}
    gap = Gap("insert", tuple(culprits), theirs, mine, theirs)
    return Alignment(history, len(culprits), (gap,), (theirs,))
