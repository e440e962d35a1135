"""Reaching definitions inside one function: which writes of a name may be the ones that a node reads.

Found backwards from the read, when it is asked for, as pyright walks its flow nodes: what nobody asks costs nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from hangdoc.diagnosis.program.accesses import Bound, Write, writes
from hangdoc.diagnosis.program.graph import ENTRY, RAISES, Graph


@dataclass(frozen=True, slots=True)
class Found:
    """Of one read: (node, write) of what may have set the name, of what filled or emptied it since, and whether the
    function's start may be reached without its having been set."""

    writes: tuple[tuple[int, Write], ...]
    contents: tuple[tuple[int, Write], ...]
    from_outside: bool


class Reaching:
    """Of one function. Example: of `x = 1; if a: x = 2; print(x)` both writes of `x` reach the `print`."""

    def __init__(self, graph: Graph, parameters: Sequence[ast.arg], outer_names: frozenset[str]) -> None:
        self._graph = graph
        self._found: dict[tuple[str, int], Found] = {}
        self.writes: list[list[Write]] = [
            writes(syntax, graph.bound.get(node, _NONE), outer_names) for node, syntax in enumerate(graph.syntax)
        ]
        self.writes[ENTRY] = [Write(each.arg, each, "argument") for each in parameters]
        self.local_names = {write.key for some in self.writes for write in some if write.kind != "global"}
        self.by_key: dict[str, list[tuple[int, Write]]] = {}
        for node, some in enumerate(self.writes):
            for write in some:
                self.by_key.setdefault(write.key, []).append((node, write))
        self._keys = [{write.key for write in some} for some in self.writes]

    def of(self, key: str, node: int) -> Found:
        """What may have given the key the value that the node reads."""
        known = self._found.get((key, node))
        if known is None:
            known = self._found[key, node] = self._search(key, node)
        return known

    def _search(self, key: str, start: int) -> Found:
        contents_key = f"{key}[]"
        graph = self._graph
        keys, predecessors = self._keys, graph.predecessors
        found: dict[tuple[int, int], tuple[int, Write]] = {}
        contents: dict[tuple[int, int], tuple[int, Write]] = {}
        seen = {start}
        waiting = [start]
        from_outside = start == ENTRY
        while waiting:
            node = waiting.pop()
            for before in predecessors[node]:
                if contents_key in keys[before]:
                    for place, write in enumerate(self.writes[before]):
                        if write.key == contents_key:
                            contents[before, place] = (before, write)
                if key in keys[before] and self._sets(key, before, node, found):
                    continue
                if before == ENTRY:
                    from_outside = True
                elif before not in seen:
                    seen.add(before)
                    waiting.append(before)
        in_text = sorted(found)
        return Found(
            tuple(found[each] for each in in_text), tuple(contents[each] for each in sorted(contents)), from_outside
        )

    def _sets(self, key: str, node: int, following: int, found: dict[tuple[int, int], tuple[int, Write]]) -> bool:
        """True if on each way from the node to the following one it has set the key. Adds what sets it."""
        graph = self._graph
        ways = [
            label for each, label in zip(graph.successors[node], graph.labels[node], strict=True) if each == following
        ]
        whole = True
        for way in ways:
            set_here = [
                (place, write)
                for place, write in enumerate(self.writes[node])
                if write.key == key and (write.outcome == way if write.outcome else way != RAISES)
            ]
            if not set_here:
                whole = False
                continue
            place, write = set_here[-1]
            if write.kind != "deleted":
                found[node, place] = (node, write)
        return whole


_NONE: Bound = {}
