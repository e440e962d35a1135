"""A flag that a condition tests: what decided is the condition under which the program set it.

Example: `if self._stale:` was True on rank 2 alone, and

    31  if abs(x.mean() - self._seen) > self.shift:
    32      self._stale = True

→ self._stale is set under `if abs(x.mean() - self._seen) > self.shift:` at line 31.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from hangdoc.diagnosis.condition.branch_point import is_rank_name
from hangdoc.diagnosis.frames.names import pattern
from hangdoc.diagnosis.source.guards import guards
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import dotted
from hangdoc.model.asked import is_constant
from hangdoc.model.message import Condition

_MOST = 2
"""Conditions; of more, none is likelier. Chosen by hand."""


def set_under(sources: Sources, test: ast.expr) -> tuple[str, list[Condition]]:
    """(the flag, the conditions under which it is set to a constant); ('', []) for a test of anything else, and where
    several classes have such an attribute, or anything but constants is put there."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test = test.operand
    if isinstance(test, ast.Compare) and all(map(is_constant, test.comparators)):
        test = test.left
    if not isinstance(test, ast.Attribute) or not dotted(test) or is_rank_name(test.attr):
        return "", []
    settings = list(_settings(sources, test.attr))
    if len({owner for owner, *_ in settings}) != 1 or not all(is_constant(value) for *_, value in settings):
        return "", []
    found: dict[Condition, None] = {}
    for (file, _), tree, node, _ in settings:
        around = [g for g in guards(tree, node.lineno) if g.kind == "if"]
        inner = around[-1] if around else None
        if inner is None or any(map(is_rank_name, inner.names)) or pattern("same_everywhere").search(inner.condition):
            continue
        if test.attr not in {name.rpartition(".")[2] for name in inner.names}:  # it is no news that it was tested
            found[Condition(inner.condition, file, inner.line)] = None
    flag = dotted(test) if dotted(test).startswith("self.") else f"self.{test.attr}"
    return flag, list(found) if len(found) <= _MOST else []


def _settings(sources: Sources, name: str) -> Iterator[tuple[tuple[str, int], ast.AST, ast.stmt, ast.expr]]:
    """((file, first line of the class), tree, statement, value) of each statement of a class that sets `self.NAME`."""
    seen: set[tuple[str, int]] = set()
    for file, tree in sources.user_trees():
        classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
        for owner in classes:
            for node in ast.walk(owner):
                targets = node.targets if isinstance(node, ast.Assign) else []
                targets = [node.target] if isinstance(node, ast.AnnAssign | ast.AugAssign) else targets
                for value in _given(node, targets, name):
                    if (file, value.lineno) not in seen and isinstance(node, ast.stmt):
                        seen.add((file, value.lineno))
                        yield (file, owner.lineno), tree, node, value


def _given(node: ast.AST, targets: list[ast.expr], name: str) -> Iterator[ast.expr]:
    value = getattr(node, "value", None)
    if not isinstance(value, ast.expr):
        return
    for target in targets:
        if dotted(target) == f"self.{name}":
            yield value
        elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            yield from (v for t, v in zip(target.elts, value.elts, strict=False) if dotted(t) == f"self.{name}")
