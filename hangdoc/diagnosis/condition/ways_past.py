"""Conditions that go the same way each time: what they test stays as it was made."""

from __future__ import annotations

import ast

from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.source.guards import Guard
from hangdoc.diagnosis.source.queries import sets_attribute
from hangdoc.diagnosis.source.syntax import dotted, enclosing_function, walk
from hangdoc.model.asked import answers_to


def is_settled(case: Case, guard: Guard, file: str) -> bool:
    """True if the guard only tests attributes that an object got when it was made: it goes the same way each time, and
    the rank has passed the message by it before. Examples: `if not self.last:`, `if self.stage.last:`, `if st.last:`
    with `st = self.stage`.
    """
    if "(" in guard.condition or not guard.names:
        return False
    if all(name.startswith("self.") for name in guard.names):
        return stay_as_made(case, {part for name in guard.names for part in name.split(".")[1:]}, file)
    owners = {owner for name in guard.names for owner, dot, last in [name.partition(".")] if dot and "." not in last}
    if len([name for name in guard.names if name.count(".") == 1]) != len(guard.names):
        return False
    if not all(owner == "self" or _stands_for_own(case, owner, guard, file) for owner in owners):
        return False
    return stay_as_made(case, {name.rpartition(".")[2] for name in guard.names}, file)


def _stands_for_own(case: Case, name: str, guard: Guard, file: str) -> bool:
    """True if the local name is set once around the guard, to an attribute of `self` that stays as it was made."""
    tree = case.sources.function(file, guard.line)
    here = enclosing_function(tree, guard.line) if tree is not None else None
    given = [
        node.value
        for node in (walk(here) if here is not None else ())
        if isinstance(node, ast.Assign) and any(dotted(target) == name for target in node.targets)
    ]
    own = dotted(given[0]) if len(given) == 1 else ""
    return own.startswith("self.") and own.count(".") == 1 and stay_as_made(case, {own.rpartition(".")[2]}, file)


def stay_as_made(case: Case, attributes: set[str], file: str) -> bool:
    """True if no function but `__init__` sets one of the attributes; of a property, those that it answers by."""
    trees = [tree for _, tree in case.sources.trees(file)]
    asked = [f for name in attributes for _, f in case.sources.functions(name) if answers_to(f, called=False)]
    parts = [part for function in asked for statement in function.body for part in walk(statement)]
    by = {part.attr for part in parts if isinstance(part, ast.Attribute)}
    return not (
        any(isinstance(part, ast.Call) for part in parts)
        or any(sets_attribute(tree, name) for tree in trees for name in attributes | by)
        or any(answers_to(function, called=False) for name in by for _, function in case.sources.functions(name))
    )
