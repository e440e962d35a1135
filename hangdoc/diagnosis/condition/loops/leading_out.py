"""What leads out of a loop that a thread has left: the loop's own handlers and tests."""

from __future__ import annotations

import ast
from collections.abc import Collection

from hangdoc.diagnosis.source.guards import way_out_guards
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import LOOPS, enclosing_function, holds, text_of, walk
from hangdoc.model.message import Condition
from hangdoc.model.process import Frame


def leading_out(sources: Sources, at: Frame) -> list[Condition]:
    """What leads out of the outermost loop around the line, which nobody is in any more: handlers first, then tests,
    but for those of what the line itself takes, such as an end mark.

    Example: `while True: ⏎ item = jobs.get() ⏎ if item is None: ⏎ return ⏎ try: ⏎ write(item) ⏎ except DiskFull: ⏎
    return` → `except DiskFull:`.
    """
    tree = sources.function(at.file, at.line)
    function = enclosing_function(tree, at.line) if tree is not None else ast.Module([], [])
    loops = [node for node in walk(function) if isinstance(node, LOOPS) and holds(node, at.line)]
    if not loops:
        return []
    loop = min(loops, key=lambda node: node.lineno)
    handlers = [
        Condition(f"except {text_of(each.type)}:" if each.type else "except:", at.file, each.lineno)
        for node in walk(function)
        if isinstance(node, ast.Try)
        for each in node.handlers
        if loop in node.body or (holds(loop, each.lineno) and _leaves(loop, each.body[-1]))
    ]
    taken = _targets(function, at.line)
    tests = [
        Condition(g.condition, at.file, g.line)
        for g in way_out_guards(function, loop.lineno)
        if not taken.intersection(_roots(g.names))
    ]
    if isinstance(loop, ast.While) and not isinstance(loop.test, ast.Constant) and not holds(loop.test, at.line):
        tests.append(Condition(f"while {text_of(loop.test)}:", at.file, loop.lineno))
    return [*handlers, *tests]


def _leaves(loop: ast.AST, last: ast.stmt) -> bool:
    """True for a `return`, a `raise`, and a `break` out of that very loop."""
    inner = (node for node in walk(loop) if isinstance(node, LOOPS) and node is not loop)
    breaks = isinstance(last, ast.Break) and not any(holds(node, last.lineno) for node in inner)
    return breaks or isinstance(last, ast.Return | ast.Raise)


def _roots(names_of: Collection[str]) -> set[str]:
    return {each.partition(".")[0] for each in names_of}


def _targets(function: ast.AST, line: int) -> set[str]:
    """The names that the line sets."""
    set_there = (n for n in walk(function) if isinstance(n, ast.Assign) and holds(n, line))
    return {n.id for each in set_there for target in each.targets for n in walk(target) if isinstance(n, ast.Name)}
