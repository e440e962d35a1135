"""A test of what only counts the rounds of a loop: by itself it parts no ranks.

Example: rank 3 has nothing left to do, goes on counting, and comes to the test at line 5 in its 24th round, while the
others wait in their 16th:

    1  while True:
    2      if not self.idle:
    3          self.forward()      # the others wait in here
    4      self.steps += 1
    5      if self.steps % 8 == 0 and self.all_done():     # rank 3 is in all_done()
    6          return

Had all ranks made the same calls in each round, they would come to the test with one count. A condition that skips the
others' call within the round is the likelier reason.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace

from hangdoc.diagnosis.condition.branch_point import BranchPoint
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.source.guards import CONDITIONS
from hangdoc.diagnosis.source.queries import sets_attribute
from hangdoc.diagnosis.source.syntax import dotted, enclosing_function, holds, walk
from hangdoc.diagnosis.source.values import SideRanks

_DOUBT = "a count that began at another number looks the same"


def skipping_before_counting(case: Case, possible: list[BranchPoint], ranks: SideRanks) -> list[BranchPoint]:
    """``possible``, where the first is a test of the loop's count, with a condition first that kept its side from the
    others' call in the same loop; unchanged where there is none, or the side that the count let through is behind."""
    first = possible[0] if possible else None
    if first is None or first.guard.kind not in CONDITIONS or first.of_library or first.rank_like:
        return possible
    skips = [
        p
        for p in possible
        if p.guarded != first.guarded and p.guard.kind in (*CONDITIONS, "match") and not (p.of_library or p.alike)
    ]
    counts = _counts(case, first) if skips else []
    if not counts or any(_is_behind(case, first, name, ranks) for name in counts):
        return possible
    skips = [replace(p, doubt=p.doubt or _DOUBT) for p in skips]
    return skips + [p for p in possible if all(p.guard != s.guard for s in skips) and p is not first]


def _counts(case: Case, point: BranchPoint) -> list[str]:
    """The names that the condition tests and that each round of the `while` around it counts; [] where it tests
    anything else that may change."""
    tree = case.sources.function(point.file, point.guard.line)
    if tree is None:
        return []
    loops = [
        node
        for node in walk(enclosing_function(tree, point.guard.line))
        if isinstance(node, ast.While) and holds(node, point.guard.line)
    ]
    counted = {name for loop in loops for name in _counted_in(loop.body)}
    names = [name for name in point.guard.names if name in counted]
    others = [name for name in point.guard.names if name not in counted]
    return names if all(_is_fixed(case, name) for name in others) else []


def _counted_in(body: Sequence[ast.stmt]) -> set[str]:
    """What each round adds a constant to, whatever happens in it."""
    added = (s for s in body if isinstance(s, ast.AugAssign) and isinstance(s.op, ast.Add))
    return {dotted(s.target) for s in added if isinstance(s.value, ast.Constant)} - {""}


def _is_fixed(case: Case, name: str) -> bool:
    """True for a constant, and for an attribute that no function but `__init__` sets."""
    last = name.rpartition(".")[2]
    return last.isupper() or ("." in name and not any(sets_attribute(t, last) for _, t in case.sources.user_trees()))


def _is_behind(case: Case, point: BranchPoint, name: str, ranks: SideRanks) -> bool:
    """True if the count of the side under the condition was seen, and is not ahead of the other side's."""
    seen = case.values.of(point.file, point.function, name)
    here, there = ([seen.get(rank, "") for rank in ranks[side]] for side in (point.guarded, 1 - point.guarded))
    if not here or not there or not all(each.isdigit() for each in (*here, *there)):
        return False
    return min(map(int, here)) <= max(map(int, there))
