"""Tests of what an object is, as libraries have them, and not of what it holds."""

from __future__ import annotations

import ast

from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.source.evaluate import test_at
from hangdoc.diagnosis.source.syntax import dotted, last_name, walk


def asks_only_for_types(tree: ast.AST | None, line: int, condition: str) -> bool:
    """True if the test at the line asks for nothing but types; by its text, ``condition``, where there is none, or
    several.

    Examples: `if isinstance(data, kind) and (other is None or not isinstance(data, other)):`, where `other` is but the
    type that is asked for; not `if x is None or isinstance(x, Tensor):`.
    """
    test = test_at(tree, line) or _parsed(condition)
    if test is None:
        return False
    kinds = {dotted(kind) for node in walk(test) if isinstance(node, ast.Call) for kind in node.args[1:]}
    parts = _parts(test)
    return any(_asks(part) for part in parts) and all(_asks(part) or _is_missing(part, kinds) for part in parts)


def _parsed(condition: str) -> ast.expr | None:
    words = condition.removeprefix("el").removeprefix("if ").removeprefix("while ").removesuffix(":")
    try:
        return ast.parse(words, mode="eval").body
    except SyntaxError:
        return None


def _parts(test: ast.expr) -> list[ast.expr]:
    """What `and`, `or` and `not` join."""
    if isinstance(test, ast.BoolOp):
        return [part for value in test.values for part in _parts(value)]
    return _parts(test.operand) if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) else [test]


def _asks(part: ast.expr) -> bool:
    """True for `isinstance(x, Tensor)` and `inspect.isfunction(x)`."""
    return isinstance(part, ast.Call) and last_name(part.func) in names("asks_what_kind_it_is")


def _is_missing(part: ast.expr, kinds: set[str]) -> bool:
    """True for `other is None` and `other is not None` of one of the types that are asked for."""
    if not isinstance(part, ast.Compare) or not isinstance(part.ops[0], ast.Is | ast.IsNot):
        return False
    (against,) = part.comparators[:1]
    return isinstance(against, ast.Constant) and against.value is None and dotted(part.left) in kinds
