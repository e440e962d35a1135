"""What decides how much a library's object has to communicate: the conditions under which the user's code fills it.

Example: `metric.compute()` gathers each of the boxes that the metric holds, so a rank that skipped one gathers less:

    for image, boxes in pictures:
        if boxes.numel() == 0:
            continue
        metric.update(boxes)

The same holds where the condition lies in update(), if the metric's class is the program's own, or one of those that a
collection of a library's was made of:

    def update(self, found, truth):
        if len(found) == 0:
            return
        self.tables.append(match(found, truth))
"""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hangdoc.diagnosis.condition.branch_point import is_rank_name
from hangdoc.diagnosis.frames.names import names, pattern
from hangdoc.diagnosis.source.guards import CONDITIONS, guards
from hangdoc.diagnosis.source.settings import Place, place_of, settings
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import dotted, holds, last_name, walk
from hangdoc.model.message import Condition
from hangdoc.model.process import Frame

_MOST = 2
"""Conditions; more of them say nothing. Chosen by hand."""
_MOST_STEPS = 24
"""Expressions that are followed to what an object was made of; chosen by hand."""
_DEEPEST = 3
"""A method, and those of the same object that it calls; chosen by hand."""
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True, slots=True)
class _Method:
    """A method, in a captured piece of the file."""

    file: str
    tree: ast.AST
    function: ast.FunctionDef | ast.AsyncFunctionDef


def filled_under(sources: Sources, where: Frame | None) -> list[Condition]:
    """The conditions under which the object that the line calls a method of is filled; [] where it is filled under
    none, or under too many to tell. A condition on the rank is none of them: it would differ from the beginning."""
    tree = sources.function(where.file, where.line) if where is not None else None
    at = place_of(sources, where.file, where.line) if where is not None else None
    if tree is None or where is None or at is None:
        return []
    calls = {
        dotted(node.func.value): node.func
        for node in walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and holds(node, where.line)
    }
    owners = {name: each for name, each in calls.items() if "." in name or name in _assigned(tree)}
    found: dict[Condition, None] = {}
    filling: dict[tuple[str, str], None] = {}
    for file, each in sources.user_trees():
        plain = {id(node.value) for node in walk(each) if isinstance(node, ast.Expr)}
        for node in walk(each):
            if not isinstance(node, ast.Call) or not (node.args or node.keywords):
                continue
            owner, method = _filled_by(node, owners, plain=id(node) in plain)
            if not owner or method == owners[owner].attr:
                continue
            if file == where.file:
                filling[owner, method] = None
            around = [g for g in guards(each, node.lineno) if g.kind in CONDITIONS]
            if file == where.file and around and not any(is_rank_name(n) for n in around[-1].names):
                found[Condition(around[-1].condition, file, around[-1].line)] = None
    for owner, method in filling:
        for name in _made_of(sources, at, owners[owner].value):
            found |= dict.fromkeys(_within_method(sources, name, method))
    found = {each: None for each in found if not pattern("same_everywhere").search(each.source)}
    return list(found) if len(found) <= _MOST else []


def _filled_by(call: ast.Call, owners: Mapping[str, ast.Attribute], *, plain: bool) -> tuple[str, str]:
    """(the one of the owners that the call gives something, by which of its methods); ('', '') where it is none.

    Examples: `self.match.update(x)`, whose result is not used (``plain``) → ('self.match', 'update'); the same of
    `f1 = self.match(x)`, where `self.match` is a metric that is computed.
    """
    fills, called = names("fills_metric")[0], owners.get(dotted(call.func))
    if called is not None and called.attr in names("computes_metric"):
        return dotted(call.func), fills
    owner = dotted(call.func.value) if isinstance(call.func, ast.Attribute) else ""
    method = last_name(call.func)
    return (owner, method) if owner in owners and (plain or method == fills) else ("", "")


def _made_of(sources: Sources, at: Place, owner: ast.expr) -> list[str]:
    """The program's classes of which the object is one, or was made.

    Example: of `self.scores = MetricCollection(parts)` with `parts = {"mrr": Rank(), "hits": Hits(k)}` → Rank, Hits.
    """
    found: dict[str, None] = {}
    waiting, steps = deque([(at, owner)]), 0
    while waiting and steps < _MOST_STEPS:
        steps += 1
        here, expression = waiting.popleft()
        for setting in settings(sources, here, expression):
            for part in _parts(setting.value):
                name = last_name(part.func) if isinstance(part, ast.Call) else ""
                if name and sources.user_classes(name):
                    found[name] = None
                elif isinstance(part, ast.Name | ast.Attribute | ast.Call):
                    waiting.append((setting.at, part))
    return list(found)


def _parts(value: ast.expr | None) -> Iterator[ast.expr]:
    """The value, and what it holds, or a call is given; not what one of the program's own names is looked up in."""
    waiting = deque([value] if value is not None else [])
    while waiting:
        node = waiting.popleft()
        yield node
        if isinstance(node, ast.Call):
            waiting += [*node.args, *(word.value for word in node.keywords)]
            if isinstance(node.func, ast.Attribute):  # `self.scores` of `self.scores.values()`
                waiting.append(node.func.value)
        elif isinstance(node, ast.Dict):
            waiting += node.values
        elif isinstance(node, ast.List | ast.Tuple | ast.Set):
            waiting += node.elts
        elif isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp):
            waiting.append(node.elt)
        elif isinstance(node, ast.DictComp):
            waiting.append(node.value)


def _within_method(sources: Sources, name: str, method: str) -> Iterator[Condition]:
    """The conditions in that method of the program's class under which lists of the object get an item."""
    methods = _methods(sources, name)
    if method in methods:
        yield from _adding(methods, method, _DEEPEST)


def _methods(sources: Sources, name: str) -> dict[str, _Method]:
    """The methods of the program's class, also of those that it is made of."""
    classes = sources.user_classes(name)
    if len(classes) != 1:
        return {}
    ((file, tree, owner),) = classes
    found: dict[str, _Method] = {}
    for base in owner.bases:
        if last_name(base) != name:
            found |= _methods(sources, last_name(base))
    return found | {each.name: _Method(file, tree, each) for each in owner.body if isinstance(each, _FUNCTIONS)}


def _adding(methods: Mapping[str, _Method], method: str, deep: int) -> Iterator[Condition]:
    """The innermost condition around each statement of the method that adds an item; of one under none, in another
    method, those there and around its call."""
    here = methods[method]
    for node in walk(here.function):
        called = dotted(node.func).removeprefix("self.") if isinstance(node, ast.Call) else ""
        handed_on = called in methods and called != method and deep > 1
        inner = list(_adding(methods, called, deep - 1)) if handed_on else []
        yield from inner
        if inner or _adds_items(node) or (handed_on and any(map(_adds_items, walk(methods[called].function)))):
            around = [g for g in guards(here.tree, getattr(node, "lineno", 0)) if g.kind in (*CONDITIONS, "return")]
            if around and not any(is_rank_name(n) for n in around[-1].names):
                yield Condition(around[-1].condition, here.file, around[-1].line)


def _adds_items(node: ast.AST) -> bool:
    """True for `self.tables.append(row)` and `self.tables += [row]`."""
    if isinstance(node, ast.AugAssign):
        return dotted(node.target).startswith("self.") and isinstance(node.value, ast.List | ast.ListComp)
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    return dotted(node.func.value).startswith("self.") and node.func.attr in names("adds_items")


def _assigned(tree: ast.AST) -> set[str]:
    """The names that the function sets: those of its own objects, and not of modules."""
    return {n.id for n in walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
