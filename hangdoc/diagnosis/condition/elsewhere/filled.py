"""What decides how much a library's object has to communicate: the conditions under which the user's code fills it.

Example: `metric.compute()` gathers each of the boxes that the metric holds, so a rank that skipped one gathers less:

    for image, boxes in pictures:
        if boxes.numel() == 0:
            continue
        metric.update(boxes)

The same holds where the condition lies in update(), if the metric's class is the program's own:

    def update(self, found, truth):
        if len(found) == 0:
            return
        self.tables.append(match(found, truth))
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from hangdoc.diagnosis.condition.branch_point import is_rank_name
from hangdoc.diagnosis.frames.names import names, pattern
from hangdoc.diagnosis.source.guards import CONDITIONS, guards
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import dotted, holds, last_name
from hangdoc.model.message import Condition
from hangdoc.model.process import Frame

_MOST = 2
"""Conditions; more of them say nothing. Chosen by hand."""


def filled_under(sources: Sources, where: Frame | None) -> list[Condition]:
    """The conditions under which the object that the line calls a method of is filled; [] where it is filled under
    none, or under too many to tell. A condition on the rank is none of them: it would differ from the beginning."""
    tree = sources.function(where.file, where.line) if where is not None else None
    if tree is None or where is None:
        return []
    owners = {
        dotted(node.func.value): node.func.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and holds(node, where.line)
    }
    owners = {name: method for name, method in owners.items() if "." in name or name in _assigned(tree)}
    found: dict[Condition, None] = {}
    filling: dict[tuple[str, str], None] = {}
    for file, each in sources.user_trees():
        for node in ast.walk(each):
            if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Call):
                continue
            function = node.value.func
            owner = dotted(function.value) if isinstance(function, ast.Attribute) else ""
            if not node.value.args or owner not in owners or getattr(function, "attr", "") == owners[owner]:
                continue
            if file == where.file:
                filling[owner, last_name(function)] = None
            around = [g for g in guards(each, node.lineno) if g.kind in CONDITIONS]
            if file == where.file and around and not any(is_rank_name(n) for n in around[-1].names):
                found[Condition(around[-1].condition, file, around[-1].line)] = None
    for owner, method in filling:
        found |= dict.fromkeys(_within_method(sources, _class_of(sources, where.file, owner), method))
    found = {each: None for each in found if not pattern("same_everywhere").search(each.source)}
    return list(found) if len(found) <= _MOST else []


def _class_of(sources: Sources, file: str, owner: str) -> str:
    """The one class, or function, whose call the file sets the name to: 'Match' of `self.match = Match(limit)`."""
    made = {
        last_name(node.value.func)
        for _, tree in sources.trees(file)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and owner in map(dotted, node.targets)
    }
    return made.pop() if len(made) == 1 else ""


def _within_method(sources: Sources, name: str, method: str) -> Iterator[Condition]:
    """The conditions in that method of the program's class under which lists of the object get an item."""
    classes = sources.user_classes(name)
    if len(classes) != 1:
        return
    ((file, tree, owner),) = classes
    for function in owner.body:
        if not isinstance(function, ast.FunctionDef) or function.name != method:
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                held = dotted(node.func.value).startswith("self.") and node.func.attr in names("adds_items")
                around = [g for g in guards(tree, node.lineno) if g.kind in (*CONDITIONS, "return")] if held else []
                if around and not any(is_rank_name(n) for n in around[-1].names):
                    yield Condition(around[-1].condition, file, around[-1].line)


def _assigned(tree: ast.AST) -> set[str]:
    """The names that the function sets: those of its own objects, and not of modules."""
    return {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
