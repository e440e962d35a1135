"""Containers that hold equally many items on every rank: written out in the program, and never changed.

Example: `self.metrics = {name: F1() for name in CLASSES}`, with `CLASSES = ("de", "fr")`, and no line that adds to it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from hangdoc.diagnosis.bounds import DEEPEST
from hangdoc.diagnosis.source.settings import Place, settings
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import dotted, last_name, walk

_KEEPS_COUNT = ("enumerate", "sorted", "list", "tuple", "dict", "reversed", "OrderedDict", "ModuleDict", "ModuleList")
"""Calls that have as many items as their one argument: Python's own, and those of torch 2.13's torch.nn."""
_VIEWS = ("items", "keys", "values")
_SETS = ast.Assign | ast.AnnAssign | ast.AugAssign | ast.NamedExpr | ast.Delete


def is_over_fixed(sources: Sources, tree: ast.AST, line: int) -> bool:
    """True if the `for` at that line goes over such a container.

    Example: `for name, metric in self.metrics.items():`, as above.
    """
    loop = next((n for n in walk(tree) if isinstance(n, ast.For) and n.lineno == line), None)
    return (
        loop is not None
        and isinstance(_unwrapped(loop.iter), ast.Attribute | ast.Name)
        and is_fixed(sources, loop.iter)
    )


def is_over_written(sources: Sources, at: Place, line: int) -> bool:
    """True if the `for` at that line, or a comprehension's, goes over what is written out wherever it comes from.

    Example: `for prompt in [*questions[:2], *documents]:`, with `questions = [ask(i) for i in range(3)]` and `documents
    = ["a", "b"]` in the same function, or in the only caller.
    """
    loops = [n.iter for n in walk(at.tree) if isinstance(n, ast.For | ast.AsyncFor) and n.lineno == line]
    loops += [n.iter for n in walk(at.tree) if isinstance(n, ast.comprehension) and n.target.lineno == line]
    return len(loops) == 1 and _is_written(sources, at, loops[0], DEEPEST)


def _is_written(sources: Sources, at: Place, value: ast.expr, steps: int) -> bool:
    """True if as many items as the source shows are in the value, whichever rank runs it."""

    def written(part: ast.expr) -> bool:
        return _is_written(sources, at, part, steps)

    if isinstance(value, ast.List | ast.Tuple):
        return all(written(each.value) for each in value.elts if isinstance(each, ast.Starred))
    if isinstance(value, ast.Set):
        return all(map(_is_written_out, value.elts))
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
        return written(value.left) and written(value.right)
    if isinstance(value, ast.Subscript):
        return isinstance(value.slice, ast.Slice) and _has_written_bounds(value.slice) and written(value.value)
    if isinstance(value, ast.ListComp):
        return all(not part.ifs and written(part.iter) for part in value.generators)
    if isinstance(value, ast.Call) and dotted(value.func) == "range":
        return all(map(_is_written_out, value.args))
    if isinstance(value, ast.Call) and dotted(value.func) == "zip":
        return bool(value.args) and all(_is_one(each) and written(each) for each in value.args)
    kept = kept_by(value) if isinstance(value, ast.Call) else None
    if kept is not None:
        return written(kept)
    found = settings(sources, at, value) if steps and isinstance(value, ast.Name | ast.Attribute) else []
    if isinstance(value, ast.Name) and (len(found) > 1 or _is_changed(at.function, value.id)):
        return False  # what sets it to something else, or takes items out, may not have run on every rank
    return bool(found) and all(
        each.value is not None
        and each.part < 0
        and each.how in ("set", "given")
        and _is_written(sources, each.at, each.value, steps - 1)
        for each in found
    )


def _is_changed(function: ast.AST, name: str) -> bool:
    """True if the function may change how many items the variable of that name holds."""
    for node in walk(function):
        if isinstance(node, ast.Call) and _may_change(node, name):
            return True
        targets = node.targets if isinstance(node, ast.Assign | ast.Delete) else []
        if any(isinstance(each, ast.Subscript) and last_name(each.value) == name for each in targets):
            return True
    return False


def _has_written_bounds(part: ast.Slice) -> bool:
    bounds = [each for each in (part.lower, part.upper, part.step) if each is not None]
    return all(_is_written_out(each.operand if isinstance(each, ast.UnaryOp) else each) for each in bounds)


def container_of(tree: ast.AST, line: int) -> str:
    """The last name of what the `for` at that line goes over, once for each of its items: 'metrics' of the loop above;
    '' where that has no name."""
    loop = next((n for n in walk(tree) if isinstance(n, ast.For) and n.lineno == line), None)
    return last_name(_unwrapped(loop.iter)) if loop is not None else ""


def is_fixed(sources: Sources, value: ast.expr) -> bool:
    """True if the value is such a container, or has as many items as one."""
    return _is_fixed(sources, value)


def _is_fixed(sources: Sources, value: ast.expr, steps: int = 0, *, keys: bool = False) -> bool:
    """``keys``: its items are made keys, or the items of a set, of which equal ones are one: they have to be written
    out, too. Example: `{"all", rank_name}` may hold one item on a rank and two on another."""
    if isinstance(value, ast.List | ast.Tuple | ast.Set):
        keys = keys or isinstance(value, ast.Set)
        return bool(value.elts) and all(map(_is_written_out if keys else _is_one, value.elts))
    if isinstance(value, ast.Dict):
        return bool(value.keys) and all(key is not None and _is_written_out(key) for key in value.keys)
    if isinstance(value, ast.DictComp | ast.ListComp | ast.SetComp):
        return _is_made_fixed(sources, value, steps, keys)
    if isinstance(value, ast.Call):
        inner = kept_by(value)
        if inner is not None and not (keys and last_name(value.func) == "values"):
            return _is_fixed(sources, inner, steps, keys=keys or _makes_keys(value.func))
        return dotted(value.func) == "range" and bool(value.args) and all(map(_is_written_out, value.args))
    # A plain name in small letters may be another thing in each function.
    named = isinstance(value, ast.Attribute) or (isinstance(value, ast.Name) and value.id.isupper())
    if not named or steps >= DEEPEST:
        return False
    found = [*_uses(sources, last_name(value))]
    # Two lines that set it to different things may be run by different ranks.
    only = found[0] if len({each and ast.dump(each) for each in found}) == 1 else None
    return only is not None and _is_fixed(sources, only, steps + 1, keys=keys)


def _is_made_fixed(sources: Sources, value: ast.DictComp | ast.ListComp | ast.SetComp, steps: int, keys: bool) -> bool:
    """True if a comprehension goes over such containers, and makes one item, or one key, of each of theirs."""
    keys = keys or not isinstance(value, ast.ListComp)
    made = value.key if isinstance(value, ast.DictComp) else value.elt
    if keys and not _is_made_of(made, {name for part in value.generators for name in _written_names(part)}):
        return False
    return all(not part.ifs and _is_fixed(sources, part.iter, steps, keys=keys) for part in value.generators)


def _is_made_of(value: ast.expr, known: set[str]) -> bool:
    """True if nothing but these names and constants is in the expression. Example: `f"{split}/{name}"`."""
    nodes = list(walk(value))
    return not any(isinstance(each, ast.Call | ast.Attribute) for each in nodes) and all(
        each.id in known for each in nodes if isinstance(each, ast.Name)
    )


def _written_names(part: ast.comprehension) -> set[str]:
    """The names of a comprehension's `for` that stand for what is written out: of `.items()`, the key alone."""
    target: ast.expr = part.target
    method = part.iter.func if isinstance(part.iter, ast.Call) else None
    if isinstance(method, ast.Attribute) and method.attr == "items" and isinstance(target, ast.Tuple):
        target = target.elts[0]
    return {node.id for node in walk(target) if isinstance(node, ast.Name)}


def _is_written_out(value: ast.expr) -> bool:
    if isinstance(value, ast.Tuple):
        return all(map(_is_written_out, value.elts))
    return isinstance(value, ast.Constant)


def _is_one(value: ast.expr) -> bool:
    return not isinstance(value, ast.Starred)


def _makes_keys(function: ast.expr) -> bool:
    return dotted(function) == "dict.fromkeys" or last_name(function) in ("dict", "OrderedDict", "ModuleDict")


def kept_by(value: ast.Call) -> ast.expr | None:
    """What a call has as many items as: `self.metrics.items()` of `sorted(self.metrics.items())`, and its object."""
    method = value.func
    if isinstance(method, ast.Attribute) and method.attr in _VIEWS and not value.args:
        return method.value
    if dotted(method) != "dict.fromkeys" and last_name(method) not in _KEEPS_COUNT:
        return None
    plain = value.args and _is_one(value.args[0]) and all(each.arg is not None for each in value.keywords)
    return value.args[0] if plain else None


def _unwrapped(value: ast.expr) -> ast.expr:
    """What the items are of: `self.metrics` of `sorted(self.metrics.items())`."""
    while isinstance(value, ast.Call) and (inner := kept_by(value)) is not None:
        value = inner
    return value


def _uses(sources: Sources, name: str) -> Iterator[ast.expr | None]:
    """What the user's code sets a variable or attribute of that name to; None for each line that may change it.

    A method that adds or removes may, who writes to a key of it, who gives it another name.
    """
    seen: set[tuple[str, str, int, int]] = set()
    for file, node in ((file, node) for file, tree in sources.user_trees() for node in walk(tree)):
        place = (file, type(node).__name__, getattr(node, "lineno", 0), getattr(node, "col_offset", 0))
        if isinstance(node, _SETS | ast.Call) and place not in seen:
            seen.add(place)
            if not isinstance(node, ast.Call):
                yield from _by(node, name)
            elif _may_change(node, name):
                yield None


def _may_change(call: ast.Call, name: str) -> bool:
    method = call.func
    if dotted(method) in ("setattr", "delattr"):
        return len(call.args) > 1 and isinstance(call.args[1], ast.Constant) and call.args[1].value == name
    return isinstance(method, ast.Attribute) and last_name(method.value) == name and method.attr in _CHANGES


def _by(node: _SETS, name: str) -> Iterator[ast.expr | None]:
    targets = node.targets if isinstance(node, ast.Assign | ast.Delete) else [node.target]
    value = None if isinstance(node, ast.AugAssign | ast.Delete) else node.value
    for target in targets:
        if isinstance(target, ast.Subscript) and last_name(target.value) == name:
            yield None
        elif isinstance(target, ast.Tuple | ast.List):
            yield from (None for each in walk(target) if last_name(each) == name)
        elif last_name(target) == name:
            yield value if len(targets) == 1 else None
    if value is not None and last_name(value) == name and not name.isupper():
        yield None


_CHANGES = (
    *("append", "appendleft", "extend", "insert", "add", "add_module", "register_module", "update", "setdefault"),
    *("pop", "popleft", "popitem", "remove", "discard", "clear", "__setitem__", "__delitem__"),
    *("difference_update", "intersection_update", "symmetric_difference_update"),
)
"""Methods of containers that change how many items they have: Python's own, and those of torch 2.13's torch.nn."""
