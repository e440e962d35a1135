"""The backward slice: what may have decided that a statement runs, and with which values."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from hangdoc.diagnosis.program.items import Definition, Predicate, Reached, Span

if TYPE_CHECKING:
    from hangdoc.diagnosis.program.functions import Function
    from hangdoc.diagnosis.program.program import Program

Ran = Callable[[str, int], bool | None]
"""(file, line) → whether the line is known to have run, or not to have; None where that is not known."""
_MOST_STEPS = 20_000
"""Items that are looked at for one slice."""


class Slice:
    """Iterates over what was reached, the nearest first; each item comes once. It may be gone through again."""

    def __init__(self, found: Iterator[Reached]) -> None:
        self._found = found
        self._kept: list[Reached] = []
        self.cut = False
        """True once the budget has been used up, and the rest was not looked at."""

    def __iter__(self) -> Iterator[Reached]:
        place = 0
        while True:
            if place == len(self._kept):
                following = next(self._found, None)
                if following is None:
                    return
                self._kept.append(following)
            yield self._kept[place]
            place += 1


def sliced(
    program: Program,
    file: str,
    line: int,
    *,
    expression: Span | None,
    stack: Sequence[tuple[str, int]],  # noqa: ARG001
    ran: Ran | None,  # noqa: ARG001
) -> Slice:
    """See ``Program.slice_back``."""
    function = program.function(file, line)
    result = Slice(iter(()))
    if function is not None:
        result = Slice(_controls(function, function.nodes_at(line, expression)))
    return result


def _controls(function: Function, start: list[int]) -> Iterator[Reached]:
    waiting: list[tuple[float, int, int, str, tuple[Predicate | Definition, ...]]] = []
    seen: set[int] = set()
    told: set[Predicate] = set()
    number = 0

    def push(node: int, distance: float, path: tuple[Predicate | Definition, ...]) -> None:
        nonlocal number
        for more, ending in ((1.0, False), (1.5, True)):
            for control in function.control(node, ending=ending):
                for branch, outcome in function.decided(control):
                    number += 1
                    heapq.heappush(waiting, (distance + more, number, branch, outcome, path))

    for node in start:
        push(node, 0.0, ())
    while waiting:
        distance, _, node, outcome, path = heapq.heappop(waiting)
        if node in seen:
            continue
        seen.add(node)
        item = function.tests[node]
        if item not in told:
            told.add(item)
            yield Reached(item, outcome, distance, path)
        push(node, distance, (*path, item))
