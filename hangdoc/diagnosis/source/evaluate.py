"""The truth of a condition by the values of its names: numbers, flags, None and what is compared with them, and
containers that are empty or not."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any

from hangdoc.diagnosis.source.syntax import dotted, last_name, walk

_COMPARED: dict[type[ast.cmpop], Callable[[Any, Any], object]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}
_COMPUTED: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mod: operator.mod,
    ast.FloorDiv: operator.floordiv,
}


_OPENING, _EMPTY = ("[", "{", "("), ("[]", "{}", "()")
"""How the values of containers begin, and those of empty ones."""


class _UnknownError(Exception):
    """A part of the condition whose value was not seen, or is no plain value."""


def truth(test: ast.AST, values: Mapping[str, str]) -> bool | None:
    """Whether the condition is true with these values of its names; None where that cannot be told.

    Example: `rank != 0 and step % 4 == 0` with rank = 2, step = 8 → True; without step → None; rank = 0 → False.
    """
    try:
        return _is_true(test, values)
    except (_UnknownError, ArithmeticError, TypeError):
        return None


def test_at(tree: ast.AST | None, line: int) -> ast.expr | None:
    """What the only `if` at the line tests; None where there is none, or several."""
    nodes = [n for n in walk(tree) if isinstance(n, ast.If | ast.IfExp) and n.lineno == line] if tree else []
    return nodes[0].test if len(nodes) == 1 else None


def goes_alike(
    tree: ast.AST | None, line: int, seen: Mapping[str, Mapping[int, str]], sides: Iterable[Iterable[int]]
) -> bool:
    """True if the `if` at the line goes the same way on all these ranks by the values of its names, though they differ.

    Example: `if n % 10 == 9:` with n = 9 on side 0, which is in there, and 19 on side 1, which has gone through all
    rounds since → True.
    """
    test = test_at(tree, line)
    if test is None:
        return False
    values = ({name: own[rank] for name, own in seen.items() if rank in own} for side in sides for rank in side)
    return {truth(test, each) for each in values} in ({True}, {False})


def value_of(expression: ast.AST, values: Mapping[str, str]) -> str:
    """The value of the expression as text, '' where it cannot be told. Example: `n - 1` with n = 5 → '4'."""
    try:
        return str(_value(expression, values))
    except (_UnknownError, ArithmeticError, TypeError):
        return ""


def _is_true(node: ast.AST, values: Mapping[str, str]) -> bool:
    """The truth of the expression; a list or dictionary is true unless it is empty."""
    shown = values.get(dotted(node), "") if isinstance(node, ast.Name | ast.Attribute) else ""
    if shown.startswith(_OPENING):
        return shown not in _EMPTY
    return bool(_value(node, values))


# One branch for each kind of expression.
def _value(node: ast.AST, values: Mapping[str, str]) -> object:
    if isinstance(node, ast.Constant) and (node.value is None or isinstance(node.value, int)):
        return node.value
    if isinstance(node, ast.Name | ast.Attribute):
        return _plain(values.get(dotted(node), ""))
    if isinstance(node, ast.Call) and dotted(node.func) and not (node.args or node.keywords):
        return _plain(values.get(f"{dotted(node.func)}()", ""))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return not _is_true(node.operand, values)
    if isinstance(node, ast.BoolOp):
        return _both(node, values)
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and _is_none(node.comparators[0]):
        known = values.get(dotted(node.left), "") if dotted(node.left) else ""
        if known and isinstance(node.ops[0], ast.Is | ast.IsNot):
            return (known == "None") == isinstance(node.ops[0], ast.Is)
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _COMPARED:
        return _COMPARED[type(node.ops[0])](_value(node.left, values), _value(node.comparators[0], values))
    if isinstance(node, ast.BinOp) and type(node.op) in _COMPUTED:
        left, right = _value(node.left, values), _value(node.right, values)
        if isinstance(left, int) and isinstance(right, int):
            return _COMPUTED[type(node.op)](left, right)
    raise _UnknownError


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _both(node: ast.BoolOp, values: Mapping[str, str]) -> bool:
    """The truth of `a and b`, `a or b`: one known part may decide it."""
    known = [truth(each, values) for each in node.values]
    decides = isinstance(node.op, ast.Or)
    if decides in known:
        return decides
    if None in known:
        raise _UnknownError
    return not decides


def _plain(value: str) -> int | None:
    if value in ("True", "False", "None"):
        return {"True": True, "False": False, "None": None}[value]
    if value.removeprefix("-").isdecimal():
        return int(value)
    raise _UnknownError


@lru_cache(maxsize=4096)
def _parsed(text: str) -> ast.expr | None:
    try:
        return ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def truth_of(text: str, values: Mapping[str, str]) -> bool | None:
    """``truth`` of an expression that is given as text."""
    test = _parsed(text)
    return truth(test, values) if test is not None else None


def is_expression(text: str) -> bool:
    """True if the text can be parsed as one expression."""
    return _parsed(text) is not None


@lru_cache(maxsize=4096)
def names_in(text: str) -> tuple[str, ...]:
    """The names and attributes of the expression, each once: `rank == 0 and self.every` → rank, self.every. What is
    called without arguments is one of them: `dist.get_rank()`."""
    test = _parsed(text)
    found: dict[str, None] = {}
    waiting: list[ast.AST] = [test] if test is not None else []
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Name | ast.Attribute) and dotted(node):
            found[dotted(node)] = None
        elif isinstance(node, ast.Call) and dotted(node.func):
            found[f"{dotted(node.func)}()"] = None
            waiting += [*node.args, *(each.value for each in node.keywords)]
        else:
            waiting += ast.iter_child_nodes(node)
    return tuple(found)


@lru_cache(maxsize=4096)
def sets_constant(text: str) -> bool:
    """True for a statement that gives a value which is written there: `self.stale = True`, `return None`, `x = []`."""
    try:
        statements = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    alone = len(statements) == 1 and not isinstance(statements[0], ast.AugAssign)
    value = getattr(statements[0], "value", None) if alone else None
    if isinstance(value, ast.UnaryOp):
        value = value.operand
    empty = isinstance(value, ast.List | ast.Tuple | ast.Dict | ast.Set) and not list(ast.iter_child_nodes(value))[1:]
    return isinstance(value, ast.Constant) or empty


@lru_cache(maxsize=4096)
def flag_in(text: str) -> str:
    """The only name that a test asks, for its truth or against a value that is written there: 'self.stale' of `not
    self.stale`, of `self.stale is None` and of `self.stale == 3`; 'due()' of a call; '' of any other test."""
    test = _parsed(text)
    while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test = test.operand
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.comparators[0], ast.Constant):
        equal = (ast.Is, ast.IsNot, ast.Eq, ast.NotEq)
        test = test.left if isinstance(test.ops[0], equal) else None
    if isinstance(test, ast.Call):
        return f"{last_name(test.func)}()"
    return dotted(test) if test is not None else ""
