"""Methods that Python calls of an object without their name being written: docs.python.org, "Data model"."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from hangdoc.diagnosis.program.graph import Test
from hangdoc.diagnosis.program.pieces import walk

_TRUTH = ("__bool__", "__len__")
_ITERATED = ("__iter__", "__next__", "__getitem__", "__aiter__", "__anext__")
_BUILTINS = {
    **dict.fromkeys(("len",), ("__len__",)),
    **dict.fromkeys(("next", "anext"), ("__next__", "__anext__")),
    **dict.fromkeys(("bool", "any", "all"), (*_TRUTH, *_ITERATED)),
    **dict.fromkeys(("iter", "list", "tuple", "set", "dict", "sorted", "enumerate", "zip", "map", "filter"), _ITERATED),
    **dict.fromkeys(("sum", "min", "max", "reversed"), _ITERATED),
}


def implied_calls(part: ast.AST, test: Test | None) -> Iterator[tuple[ast.AST, tuple[str, ...]]]:
    """(object, methods that may be called of it) in an expression; ``test``: what it is tested for, if it is.

    Example: of `for batch in loader:` → (`loader`, ('__iter__', '__next__', …)).
    """
    if test is not None and test.expression is part and test.kind != "except":
        yield part, _ITERATED if test.is_loop else _TRUTH
    for node in walk(part):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _BUILTINS:
            yield from ((each, _BUILTINS[node.func.id]) for each in node.args)
        elif isinstance(node, ast.Subscript):
            yield node.value, ("__getitem__",)
        elif isinstance(node, ast.Compare):
            pairs = zip(node.ops, node.comparators, strict=True)
            yield from ((each, ("__contains__",)) for op, each in pairs if isinstance(op, ast.In | ast.NotIn))
