"""Containers that hold equally many items on every rank: written out in the program, and never changed.

Example: `self.metrics = {name: F1() for name in CLASSES}`, with `CLASSES = ("de", "fr")`, and no line that adds to it.
"""

from __future__ import annotations

import ast

from hangdoc.diagnosis.source.syntax import dotted, last_name

_KEEPS_COUNT = ("enumerate", "sorted", "list", "tuple", "dict", "reversed", "OrderedDict", "ModuleDict", "ModuleList")
"""Calls that have as many items as their one argument: Python's own, and those of torch 2.13's torch.nn."""
_VIEWS = ("items", "keys", "values")


def _is_one(value: ast.expr) -> bool:
    return not isinstance(value, ast.Starred)


def kept_by(value: ast.Call) -> ast.expr | None:
    """What a call has as many items as: `self.metrics.items()` of `sorted(self.metrics.items())`, and its object."""
    method = value.func
    if isinstance(method, ast.Attribute) and method.attr in _VIEWS and not value.args:
        return method.value
    if dotted(method) != "dict.fromkeys" and last_name(method) not in _KEEPS_COUNT:
        return None
    plain = value.args and _is_one(value.args[0]) and all(each.arg is not None for each in value.keywords)
    return value.args[0] if plain else None
