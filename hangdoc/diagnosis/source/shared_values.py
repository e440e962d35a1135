"""What ends a wait for something that processes share: a value in memory that a loop polls, an event or a semaphore."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.source.syntax import last_name, walk

_STORED = ("value", "raw")
"""The attributes of what multiprocessing shares: `Value.value`, `Array.raw`."""


def tests_of(loop: ast.AST) -> list[ast.AST]:
    """What decides whether a loop goes on: its own test, and those that lead to its `break` or `return`."""
    leaving = (n for n in walk(loop) if isinstance(n, ast.If) and isinstance(n.body[-1], ast.Break | ast.Return))
    return [*([loop.test] if isinstance(loop, ast.While) else []), *(each.test for each in leaving)]


def written(node: ast.AST) -> Iterator[str]:
    """The names of what a statement or a call writes into: 'flags' of `flags[rank] = 1`, 'page' of `pack_into("q",
    self.page, 0, 1)`, 'state' of `state.fill_(1)` and `state.value = 1`."""
    if isinstance(node, ast.Assign | ast.AugAssign):
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            if isinstance(target, ast.Subscript) or (isinstance(target, ast.Attribute) and target.attr in _STORED):
                yield last_name(target.value)
    elif isinstance(node, ast.Call) and last_name(node.func) in names("writes_into"):
        yield from (last_name(each) for each in node.args[:2])
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _changes_its_object(node.func.attr):
        yield last_name(node.func.value)


def _changes_its_object(method: str) -> bool:
    return method.endswith("_") or method in names("writes_into_itself")
