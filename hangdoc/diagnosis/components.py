"""Strongly connected components of a graph: the nodes that lead to each other."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping
from typing import TypeVar

_Node = TypeVar("_Node", bound=Hashable)


def components(ahead: Mapping[_Node, Collection[_Node]]) -> Iterator[frozenset[_Node]]:
    """Each component behind all those that it leads to (Tarjan 1972, with the two stacks of Gabow 2000).

    ``ahead``: node → those that an arrow leads to; what is no key leads nowhere. Example: 0 → 1 → 2 → 1 → {1, 2}, {0}.
    """
    number: dict[_Node, int] = {}
    done: set[_Node] = set()
    for root in ahead:
        way, left, firsts = [(root, iter((root,)))], list[_Node](), list[_Node]()
        while way:
            node, rest = way[-1]
            following = next((each for each in rest if each not in done), None)
            if following is None:
                way.pop()
                if firsts and firsts[-1] == node:
                    firsts.pop()
                    found = {node}
                    while (last := left.pop()) != node:
                        found.add(last)
                    done |= found
                    yield frozenset(found)
            elif following not in number:
                number[following] = len(number)
                left.append(following)
                firsts.append(following)
                way.append((following, iter(ahead.get(following, ()))))
            else:
                while number[firsts[-1]] > number[following]:
                    firsts.pop()
