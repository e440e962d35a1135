"""Dominators, and the control dependence that follows from post-dominators.

Graphs are lists: ``successors[n]`` holds the nodes that may follow node n.
"""

from __future__ import annotations

from collections.abc import Sequence

NOWHERE = -1
"""The immediate dominator of a node that the root does not reach."""


def immediate_dominators(
    successors: Sequence[Sequence[int]], predecessors: Sequence[Sequence[int]], root: int
) -> list[int]:
    """Node → the nearest other node on every way to it from the root; the root's is itself.

    "A Simple, Fast Dominance Algorithm", Cooper, Harvey and Kennedy 2001. Given the two lists the other way round, and
    the exit for the root, it yields post-dominators. Example: 0→1, 0→2, 1→3, 2→3 → [0, 0, 0, 0].
    """
    order = _postorder(successors, root)
    number = [NOWHERE] * len(successors)
    for place, node in enumerate(order):
        number[node] = place
    found = [NOWHERE] * len(successors)
    found[root] = root
    changed = True
    while changed:
        changed = False
        for node in reversed(order):
            if node == root:
                continue
            nearest = NOWHERE
            for other in predecessors[node]:
                if found[other] == NOWHERE:
                    continue
                nearest = other if nearest == NOWHERE else _common(nearest, other, found, number)
            if found[node] != nearest:
                found[node] = nearest
                changed = True
    return found


def _common(one: int, other: int, found: Sequence[int], number: Sequence[int]) -> int:
    """The nearest dominator of both. The later of two nodes in postorder lies nearer to the root."""
    while one != other:
        while number[one] < number[other]:
            one = found[one]
        while number[other] < number[one]:
            other = found[other]
    return one


def _postorder(successors: Sequence[Sequence[int]], root: int) -> list[int]:
    """The nodes that the root reaches, each behind all that are reached through it."""
    found: list[int] = []
    seen = bytearray(len(successors))
    seen[root] = 1
    waiting = [(root, iter(successors[root]))]
    while waiting:
        node, rest = waiting[-1]
        for other in rest:
            if not seen[other]:
                seen[other] = 1
                waiting.append((other, iter(successors[other])))
                break
        else:
            waiting.pop()
            found.append(node)
    return found


def control_dependence(
    successors: Sequence[Sequence[int]], predecessors: Sequence[Sequence[int]], leaves: int
) -> list[list[tuple[int, int]]]:
    """Node → (branch, which of its successors) for each branch that decides whether the node runs.

    Ferrante, Ottenstein and Warren 1987: a node depends on a branch if it post-dominates one of its successors and not
    the branch itself. ``leaves`` is the exit, which every node has to reach. Example: 0→1, 0→2, 1→2 with 2 as the exit
    → node 1 depends on (0, 0).
    """
    nearest = immediate_dominators(predecessors, successors, leaves)
    found: list[list[tuple[int, int]]] = [[] for _ in successors]
    for branch, following in enumerate(successors):
        if len(following) < 2:
            continue
        stop = nearest[branch]
        for place, first in enumerate(following):
            node = first
            while node not in (stop, NOWHERE):
                found[node].append((branch, place))
                node = nearest[node]
    return found
