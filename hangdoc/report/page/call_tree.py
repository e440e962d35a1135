"""The stacks of all ranks as one tree: a line of code once, with the ranks that are at it or below it.

Example: ranks 0 to 3 are in main:9; 0 to 2 went on to train:5, rank 3 to save:7 → main:9 [0-3] with two branches.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from hangdoc.model.diagnosis import Diagnosis
from hangdoc.model.process import Frame, Stack

_MOST_BRANCHES = 400
"""Nodes of the tree, after which the rest is left out. Chosen by hand: a person reads no more."""


class Branch(NamedTuple):
    """Frames that the same ranks went through, outermost first, and where they parted after them.

    ``guilty``: only culprits did.
    """

    ranks: tuple[int, ...]
    frames: tuple[Frame, ...]
    below: tuple[Branch, ...]
    guilty: bool


def call_tree(diagnosis: Diagnosis) -> tuple[Branch, ...]:
    """The tree of where each rank is now; () where no stack was seen."""
    stacks = {activity.rank: activity.stack[::-1] for activity in diagnosis.ranks if activity.stack}
    left = [_MOST_BRANCHES]
    return tuple(_branches(stacks, 0, frozenset(diagnosis.culprits), left))


def _branches(stacks: dict[int, Stack], depth: int, culprits: frozenset[int], left: list[int]) -> Iterable[Branch]:
    following: dict[tuple[str, int, str], list[int]] = {}
    for rank, stack in stacks.items():
        if depth < len(stack):
            frame = stack[depth]
            following.setdefault((frame.file, frame.line, frame.function), []).append(rank)
    for ranks in sorted(following.values(), key=lambda ranks: (-len(ranks), ranks)):
        if left[0] <= 0:
            return
        left[0] -= 1
        members = {rank: stacks[rank] for rank in ranks}
        end = _fork(list(members.values()), depth)
        frames = members[ranks[0]][depth:end]
        below = tuple(_branches(members, end, culprits, left))
        yield Branch(tuple(ranks), frames, below, culprits.issuperset(ranks))


def _fork(stacks: list[Stack], depth: int) -> int:
    """The first depth behind ``depth`` at which the stacks differ, or one of them ends."""
    different = {id(stack): stack for stack in stacks}.values()
    first, *others = different
    end = depth + 1
    while end < len(first) and all(end < len(o) and _same(first[end], o[end]) for o in others):
        end += 1
    return end


def _same(a: Frame, b: Frame) -> bool:
    return (a.file, a.line, a.function) == (b.file, b.line, b.function)
