"""A wait until a count is back, of which an exception or an early way out leads past the line that counts it down.

Example: `while self.busy > 0: ⏎ self.idle.wait()`, and of

    self.busy += 1
    mean = sum(values) / len(values)
    self.busy -= 1

a ZeroDivisionError, which `except Exception:` of the caller swallows, has left the last line out → that `except`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from hangdoc.diagnosis.causes.phrases import cited
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.source.guards import CONDITIONS, guards
from hangdoc.diagnosis.source.syntax import enclosing_function, holds, last_name, text_of, walk
from hangdoc.model.message import Condition, Joined, Message, Place

_MOST_CONDITIONS = 2
"""Conditions that a sentence names; chosen by hand."""
_DEEPEST = 2
"""Callers that are asked for a handler, one by way of the other; chosen by hand."""


def counted_unevenly(case: Case, rank: int) -> Message:
    """What leads past the line that would count back what the rank's loop waits for; '' where the count is not changed
    up and down in one function, or nothing leads past it."""
    where = next(iter(user_stack(case.activities[rank].stack)), None)
    tree = case.sources.function(where.file, where.line) if where is not None else None
    loops = [n for n in walk(tree) if isinstance(n, ast.While) and holds(n, where.line)] if tree and where else []
    for loop in loops[-1:]:
        for name in {last_name(n) for n in walk(loop.test) if isinstance(n, ast.Attribute | ast.Name)}:
            for file, piece, first, second in _pairs(case, name):
                past = _past(case, file, piece, first, second)
                if past:
                    up: Message = [f"`{text_of(first)}` (", Place(file, first.lineno), ") is taken back by "]
                    down: Message = [f"`{text_of(second)}` (", Place(file, second.lineno), "), past which "]
                    return [up, down, Joined(past[:_MOST_CONDITIONS], " or "), " leads"]
    return ""


def _pairs(case: Case, name: str) -> Iterator[tuple[str, ast.AST, ast.AugAssign, ast.AugAssign]]:
    """(file, captured piece, the first change of the count in a function, a later one the other way)."""
    for file, piece in case.sources.user_trees():
        changes = [n for n in walk(piece) if isinstance(n, ast.AugAssign) and last_name(n.target) == name]
        changes = [n for n in changes if isinstance(n.op, ast.Add | ast.Sub)]
        for first in changes:
            function = enclosing_function(piece, first.lineno)
            later = [n for n in changes if n.lineno > first.lineno and type(n.op) is not type(first.op)]
            later = [n for n in later if enclosing_function(piece, n.lineno) is function]
            if later and not _is_final(function, later[0]):
                yield file, piece, first, later[0]


def _is_final(function: ast.AST, node: ast.AST) -> bool:
    tried = (n for n in walk(function) if isinstance(n, ast.Try))
    return any(node in walk(each) for n in tried for each in n.finalbody)


def _past(case: Case, file: str, piece: ast.AST, first: ast.AugAssign, second: ast.AugAssign) -> list[Condition]:
    """The conditions between the two changes that decide about the second; else the handlers of exceptions around it,
    or around the calls of its function."""
    known = {guard.place for guard in guards(piece, first.lineno)}
    around = [g for g in guards(piece, second.lineno) if g.place not in known and g.line > first.lineno]
    deciding = [cited(each, file) for each in around if each.kind in (*CONDITIONS, "return")]
    if deciding:
        return deciding
    function = enclosing_function(piece, first.lineno)
    handlers = list(_handlers(file, piece, first.lineno))
    names = {getattr(function, "name", "")}
    for _ in range(_DEEPEST if not handlers else 0):
        calls = [call for name in names for call in case.sources.user_calls(name)]
        handlers += [each for call in calls for each in _handlers(call.file, call.tree, call.call.lineno)]
        names = {getattr(call.function, "name", "") for call in calls}
    return list(dict.fromkeys(handlers))


def _handlers(file: str, piece: ast.AST, line: int) -> Iterator[Condition]:
    for node in walk(piece):
        if isinstance(node, ast.Try) and any(holds(each, line) for each in node.body):
            for handler in node.handlers:
                name = f" as {handler.name}" if handler.name else ""
                kind = f" {text_of(handler.type)}{name}" if handler.type is not None else ""
                yield Condition(f"except{kind}:", file, handler.lineno)
