"""What runs where a name, an attribute or another value is called: a function, a lambda, or an object's `__call__`.

Example: after `due = Every(5.0)`, in which Every is a class of the program, `due(step)` runs `Every.__call__`; after
`due = partial(late, 5.0)` it runs late(). What a library makes runs nothing that can be read.
"""

from __future__ import annotations

import ast

from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.source.settings import Place, settings
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import dotted, last_name, walk
from hangdoc.model.asked import answers_to, can_be_method

Runs = tuple[str, ast.FunctionDef | ast.Lambda]
"""(file, what runs)."""
_DEEPEST = 4
"""Values that are set to each other, followed this far; chosen by hand."""


def run_by(sources: Sources, file: str, here: ast.AST, value: ast.expr, deep: int = _DEEPEST) -> Runs | None:
    """What runs where the value is called; ``here`` is the function that the value stands in. None where it is none of
    the program's, or one of several that cannot be told apart."""
    if isinstance(value, ast.Lambda):
        return file, value
    if deep <= 0:
        return None
    if isinstance(value, ast.Call):
        if last_name(value.func) in names("binds_arguments") and value.args:
            return run_by(sources, file, here, value.args[0], deep - 1)
        return _method(sources, last_name(value.func)) or _made_within(sources, here, value.func)
    if not isinstance(value, ast.Name | ast.Attribute):
        return None
    function = the_one(sources, here, last_name(value), called=True)
    if function is not None and can_be_method(function[1], value):
        return function
    by = _set_in(sources, file, here, value)
    return run_by(sources, file, *by, deep - 1) if by is not None else None


def the_one(sources: Sources, here: ast.AST, name: str, *, called: bool) -> tuple[str, ast.FunctionDef] | None:
    """The program's one function of that name."""
    found = [
        (where, function)
        for where, function in sources.user_functions(name)
        if answers_to(function, called=called) and function is not here
    ]
    return found[0] if len(found) == 1 else None


def set_to(here: ast.AST, name: str) -> dict[ast.AST, ast.expr | None]:
    """Statement → what it sets the name to; None for one of several values, and for what a loop or a sum sets."""
    found: dict[ast.AST, ast.expr | None] = {}
    for node in walk(here):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name | ast.Attribute) and dotted(target) == name for target in targets):
            whole = isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr)
            found[node] = getattr(node, "value", None) if whole else None
        elif any(isinstance(part, ast.Name) and part.id == name for t in targets for part in getattr(t, "elts", ())):
            found[node] = None
    return found


def _set_in(
    sources: Sources, file: str, here: ast.AST, value: ast.Name | ast.Attribute
) -> tuple[ast.AST, ast.expr] | None:
    """(function, value) of the one place that sets the name: in the function itself, else anywhere in the file."""
    found = settings(sources, Place(file, here, here), value)
    only = found[0] if len(found) == 1 and found[0].at.file == file else None
    if only is None or only.how != "set" or only.value is None or only.part >= 0:
        return None
    return only.at.function, only.value


def _method(sources: Sources, name: str, method: str = "__call__") -> Runs | None:
    """That method of the program's one class of that name."""
    methods = ((file, each) for file, _, owner in sources.user_classes(name) for each in owner.body)
    found = [(file, each) for file, each in methods if isinstance(each, ast.FunctionDef) and each.name == method]
    return found[0] if len(found) == 1 else None


def _made_within(sources: Sources, here: ast.AST, maker: ast.expr) -> Runs | None:
    """The one function or lambda that the program's function ``maker`` makes and returns."""
    found = the_one(sources, here, last_name(maker), called=True)
    if found is None:
        return None
    file, function = found
    own = {each.name: each for each in function.body if isinstance(each, ast.FunctionDef)}
    given = [each.value for each in walk(function) if isinstance(each, ast.Return)]
    made = [own.get(each.id) if isinstance(each, ast.Name) else each for each in given]
    runs = [each for each in made if isinstance(each, ast.FunctionDef | ast.Lambda)]
    return (file, runs[0]) if len(runs) == 1 else None
