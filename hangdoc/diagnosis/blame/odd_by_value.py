"""Of ranks that all wait at one line, the one that waits there for something else: what names it has another value.

Example: all ranks poll in `while self.store.add(key, 0) < self.size:`, with `key = f"meet/{self.generation}"` above it,
and self.generation is 3 on rank 1 and 1 on all others → rank 1, which is out of step.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from hangdoc.diagnosis.blame.how_sure import at_one_line
from hangdoc.diagnosis.condition.branch_point import is_rank_name
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Explanation
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.source.syntax import dotted, enclosing_function, holds, innermost_loop, walk
from hangdoc.diagnosis.source.values import equals_rank, is_hidden
from hangdoc.model.kinds import Confidence
from hangdoc.model.process import Frame

_STEPS = 2
"""Names that are set by each other, followed this far; chosen by hand."""


@dataclass(frozen=True, slots=True)
class OutOfStep(Explanation):
    """All ranks wait ``at`` a line for what ``name`` tells, which the culprit alone has another value of."""

    at: Frame
    name: str
    values: tuple[tuple[int, str], ...]


def odd_by_value(case: Case, ranks: tuple[int, ...] = ()) -> Blame[OutOfStep] | None:
    """The blame of that rank; of two, either. None where the ranks are at several lines, or the values do not tell.
    ``ranks``: those that wait, all by default."""
    everybody = ranks or tuple(sorted(case.activities))
    if case.hidden or len(everybody) < 2 or not at_one_line(case, everybody):
        return None
    where = next(iter(user_stack(case.activities[everybody[0]].stack)), None)
    for name in _named_there(case, where) if where is not None else ():
        values = case.values.of(where.file, where.function, name) if where is not None else {}
        known = values.keys() == set(everybody) and not any(map(is_hidden, values.values()))
        if where is None or not known or is_rank_name(name) or equals_rank(values):
            continue
        by_value: dict[str, list[int]] = {}
        for rank in everybody:
            by_value.setdefault(values[rank], []).append(rank)
        few, *rest = sorted(by_value.values(), key=len)
        if len(rest) != 1 or len(few) != 1:
            continue
        found = OutOfStep(where, name, tuple(sorted(values.items())))
        sure = f"rank {few[0]} alone has another `{name}` than the others, by which they wait"
        if len(everybody) > 2:
            return Blame(found, tuple(few), confidence=Confidence.LIKELY, sure=sure)
        return Blame(found, tuple(few), (tuple(rest[0]),), sure="the two differ in what they wait for")
    return None


def _named_there(case: Case, where: Frame) -> list[str]:
    """The names in the test of the loop that polls around the line, or in the statement at it; and those in what sets
    these names in the function."""
    tree = case.sources.function(where.file, where.line)
    if tree is None:
        return []
    function = enclosing_function(tree, where.line)
    loop = innermost_loop(tree, where.line)
    asked: list[ast.AST] = [loop.test] if isinstance(loop, ast.While) else []
    asked = asked or [n for n in walk(function) if isinstance(n, ast.Call) and holds(n, where.line)]
    found: dict[str, None] = {}
    for _ in range(_STEPS):
        parts = [part for each in asked for part in walk(each) if isinstance(part, ast.Name | ast.Attribute)]
        new = dict.fromkeys(name for part in parts if (name := dotted(part)) and name not in found)
        found |= new
        sets = (n for n in walk(function) if isinstance(n, ast.Assign))
        asked = [n.value for n in sets if any(dotted(target) in new for target in n.targets)]
    return list(found)
