"""The ways out of a function between the line that takes a lock and the one that lets it go."""

from __future__ import annotations

import ast

from hangdoc.diagnosis.source.guards import Guard, guards
from hangdoc.diagnosis.source.locks import let_go_late
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import enclosing_function, holds, innermost_loop, walk
from hangdoc.model.process import Frame


def ways_round_letting_go(where: Frame, sources: Sources) -> list[tuple[int, Guard]]:
    """(line, innermost condition) of the statements by which the function is left, or its loop goes on, between the
    line that takes a lock and the first call that lets it go; [] where that stands in a `finally`.

    Example: `self.places.acquire() ⏎ if part is None: ⏎ return zeros ⏎ data = load(part) ⏎ self.places.release()` →
    [(3, the `if`)]. The `break` of a loop in between leads to that call, and so may a `raise` that is caught.
    """
    late = let_go_late(where, sources)
    tree = sources.function(where.file, where.line)
    if late is None or tree is None:
        return []
    function = enclosing_function(tree, where.line)
    leaving = (n for n in walk(function) if isinstance(n, ast.Return | ast.Continue | ast.Break | ast.Raise))
    lines = sorted(n.lineno for n in leaving if where.line < n.lineno < late[0] and _leads_out(n, function, where.line))
    known = {guard.place for guard in guards(function, where.line)}
    around = [(line, [g for g in guards(function, line) if g.place not in known]) for line in lines]
    return [(line, found[-1]) for line, found in around if found]


def _leads_out(node: ast.Return | ast.Continue | ast.Break | ast.Raise, function: ast.AST, line: int) -> bool:
    """True if the statement leaves the function, or the round of the loop that the line is in."""
    if enclosing_function(function, node.lineno) is not function:
        return False
    if isinstance(node, ast.Raise):
        tries = (n for n in walk(function) if isinstance(n, ast.Try) and n.handlers)
        return not any(holds(statement, node.lineno) for each in tries for statement in each.body)
    if isinstance(node, ast.Return):
        return True
    loop = innermost_loop(function, node.lineno)
    return loop is not None and holds(loop, line)
