"""Containers that hold equally many items on every rank: written out in the program, and never changed.

Example: `self.metrics = {name: F1() for name in CLASSES}`, with `CLASSES = ("de", "fr")`, and no line that adds to it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from hangdoc.diagnosis.frames.library import is_library
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import dotted, last_name
from hangdoc.model.process import Frame

_KEEPS_COUNT = ("enumerate", "sorted", "list", "tuple", "dict", "reversed", "OrderedDict", "ModuleDict", "ModuleList")
"""Calls that have as many items as their one argument: Python's own, and those of torch 2.13's torch.nn."""
_VIEWS = ("items", "keys", "values")
_MOST_STEPS = 4
"""Names that are followed to what they were set to; chosen by hand."""


def is_over_fixed(sources: Sources, tree: ast.AST, line: int) -> bool:
    """True if the `for` at that line goes over such a container.

    Example: `for name, metric in self.metrics.items():`, as above.
    """
    loop = next((n for n in ast.walk(tree) if isinstance(n, ast.For) and n.lineno == line), None)
    return (
        loop is not None
        and isinstance(_unwrapped(loop.iter), ast.Attribute | ast.Name)
        and _is_fixed(sources, loop.iter)
    )


def _is_fixed(sources: Sources, value: ast.expr, steps: int = 0) -> bool:
    value = _unwrapped(value)
    if isinstance(value, ast.List | ast.Tuple | ast.Set):
        return bool(value.elts) and not any(isinstance(each, ast.Starred) for each in value.elts)
    if isinstance(value, ast.Dict):
        return bool(value.keys) and None not in value.keys
    if isinstance(value, ast.DictComp | ast.ListComp):
        return all(not part.ifs and _is_fixed(sources, part.iter, steps) for part in value.generators)
    if isinstance(value, ast.Call):
        constant = all(isinstance(each, ast.Constant) for each in value.args)
        return dotted(value.func) == "range" and bool(value.args) and constant
    # A plain name in small letters may be another thing in each function.
    named = isinstance(value, ast.Attribute) or (isinstance(value, ast.Name) and value.id.isupper())
    if not named or steps >= _MOST_STEPS:
        return False
    set_to = list(_set_to(sources, last_name(value)))
    return bool(set_to) and all(each is not None and _is_fixed(sources, each, steps + 1) for each in set_to)


def _unwrapped(value: ast.expr) -> ast.expr:
    """What the items are of: `self.metrics` of `sorted(self.metrics.items())`."""
    while isinstance(value, ast.Call):
        if isinstance(value.func, ast.Attribute) and value.func.attr in _VIEWS and not value.args:
            value = value.func.value
        elif (dotted(value.func) == "dict.fromkeys" and value.args) or (
            last_name(value.func) in _KEEPS_COUNT and value.args and not isinstance(value.args[0], ast.Starred)
        ):
            value = value.args[0]
        else:
            break
    return value


def _set_to(sources: Sources, name: str) -> Iterator[ast.expr | None]:
    """What the user's code sets a variable or attribute of that name to; None for each line that may add to it.

    A method that adds or removes may, and so may who writes to a key of it.
    """
    seen: set[tuple[str, int, int]] = set()
    for file in sources.files():
        if is_library(Frame(file, 0, "")):
            continue
        for node in (node for _, tree in sources.trees(file) for node in ast.walk(tree)):
            place = (file, getattr(node, "lineno", 0), getattr(node, "col_offset", 0))
            if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Delete | ast.Call):
                if place in seen:
                    continue
                seen.add(place)
                yield from _by(node, name)


def _by(
    node: ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Delete | ast.Call, name: str
) -> Iterator[ast.expr | None]:
    if isinstance(node, ast.Call):
        method = node.func
        if isinstance(method, ast.Attribute) and last_name(method.value) == name and method.attr in _ADDS:
            yield None
        return
    targets = node.targets if isinstance(node, ast.Assign | ast.Delete) else [node.target]
    for target in targets:
        if isinstance(target, ast.Subscript) and last_name(target.value) == name:
            yield None
        elif isinstance(target, ast.Tuple | ast.List):
            yield from (None for each in ast.walk(target) if last_name(each) == name)
        elif last_name(target) == name:
            yield None if isinstance(node, ast.AugAssign | ast.Delete) else node.value


_ADDS = ("append", "extend", "insert", "add", "update", "setdefault", "pop", "popitem", "remove", "discard", "clear")
"""Methods of containers that change how many items they have."""
